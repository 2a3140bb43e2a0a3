//! Mail between shards that is never lost.
//!
//! The reactor's mailboxes are bounded and lock-free. Messages here are control traffic, each of which
//! somebody waits for, so one that finds its mailbox full goes to an overflow list behind a lock.

use std::sync::{Arc, Mutex};

use longshore_reactor::mail::{Mailbox, SendError, Sender, mailbox};
use longshore_reactor::wake::Waker;

use crate::message::Message;

/// Unread messages a shard may have before the overflow list is used.
const MAILBOX_CAPACITY: usize = 1024;

type Overflow = Arc<Mutex<Vec<Message>>>;

/// Sends to one shard. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    sender: Sender<Message>,
    overflow: Overflow,
    waker: Waker,
}

/// A shard's end.
#[derive(Debug)]
pub(crate) struct Inbox {
    mailbox: Mailbox<Message>,
    overflow: Overflow,
}

/// Makes the two ends; `waker` is the receiving shard's.
pub(crate) fn post_box(waker: Waker) -> (Post, Inbox) {
    let (sender, mailbox) = mailbox(MAILBOX_CAPACITY, waker.clone());
    let overflow = Overflow::default();
    (
        Post {
            sender,
            overflow: overflow.clone(),
            waker,
        },
        Inbox { mailbox, overflow },
    )
}

impl Post {
    /// Delivers `message`, unless the shard has ended: then nobody waits for it any more.
    pub(crate) fn send(&self, message: Message) {
        match self.sender.send(message) {
            Ok(()) | Err(SendError::Closed(_)) => {}
            Err(SendError::Full(message)) => {
                self.overflow
                    .lock()
                    .expect("nothing panics under this lock")
                    .push(message);
                self.waker.wake();
            }
        }
    }
}

impl Inbox {
    /// Whether nothing waits to be read.
    pub(crate) fn is_empty(&self) -> bool {
        self.mailbox.is_empty()
            && self
                .overflow
                .lock()
                .expect("nothing panics under this lock")
                .is_empty()
    }

    /// The next message.
    pub(crate) fn receive(&mut self) -> Option<Message> {
        self.mailbox.receive().or_else(|| {
            self.overflow
                .lock()
                .expect("nothing panics under this lock")
                .pop()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_is_lost_when_the_mailbox_is_full() {
        let (post, mut inbox) = post_box(Waker::new().expect("an eventfd"));
        let sent = MAILBOX_CAPACITY * 2 + 3;
        for _ in 0..sent {
            post.send(Message::Shutdown);
        }
        assert_eq!(std::iter::from_fn(|| inbox.receive()).count(), sent);
    }
}
