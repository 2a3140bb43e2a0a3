//! Options of the kernel for connections, which it may refuse.

use std::io;
use std::net::TcpStream;

use longshore_reactor::{Engine, socket};

use crate::config::SocketOptions;

/// What is asked for each connection, as long as the kernel grants it.
#[derive(Debug)]
pub(crate) struct Options {
    asked: SocketOptions,
}

impl Options {
    pub(crate) fn new(asked: SocketOptions) -> Self {
        Self { asked }
    }

    /// Sets them for a new connection. What is refused is told once, and not asked for again: the
    /// connection is as good without.
    pub(crate) fn set(&mut self, stream: &TcpStream) {
        if let Some(microseconds) = self.asked.busy_poll_us {
            let prefer = self.asked.prefer_busy_poll;
            if let Err(error) = socket::set_busy_poll(stream, microseconds, prefer) {
                self.asked.busy_poll_us = None;
                refused("busy-poll", &error);
            }
        }
        if let Some(priority) = self.asked.priority
            && let Err(error) = socket::set_priority(stream, priority)
        {
            self.asked.priority = None;
            refused("priority", &error);
        }
    }
}

/// Asks that the engine of a shard polls network cards before it sleeps, if connections are to be polled. A kernel
/// that refuses does so to all shards, and the first one tells.
pub(crate) fn poll_network(engine: &Engine, asked: &SocketOptions, shard: usize) {
    let Some(microseconds) = asked.busy_poll_us else {
        return;
    };
    if let Err(error) = engine.poll_network(microseconds, asked.prefer_busy_poll)
        && shard == 0
    {
        tracing::info!(
            engine = %engine.kind(),
            %error,
            "busy-poll: only receives poll the network card. Polling before an event loop sleeps needs Linux 6.9 with CONFIG_NET_RX_BUSY_POLL"
        );
    }
}

fn refused(option: &str, error: &io::Error) {
    let advice = if error.kind() == io::ErrorKind::PermissionDenied {
        "; it needs CAP_NET_ADMIN"
    } else {
        ""
    };
    tracing::warn!(option, %error, "the kernel refuses a socket option; connections work without it{advice}");
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_refused_option_is_not_asked_for_again() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let mut options = Options::new(SocketOptions {
            // Beyond what a signed number holds: refused to everybody.
            priority: Some(u32::MAX),
            ..SocketOptions::default()
        });
        options.set(&stream);
        assert_eq!(options.asked.priority, None);
    }
}
