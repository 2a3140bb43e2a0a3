//! Mail for connections that have moved, and the order of mail and moves: see [`crate::placement`].

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use crate::address::ConnectionAddress;
use crate::mail::message::Message;
use crate::mail::message::Post;

/// The shards of connections that are not where their name says.
#[derive(Debug, Default)]
pub(crate) struct ConnectionAddresses(Mutex<HashMap<ConnectionAddress, u32>>);

impl ConnectionAddresses {
    /// Sends to the connection of that name, wherever it is.
    pub(crate) fn send(&self, posts: &[Post], name: ConnectionAddress, message: Message) {
        let shards = self.lock();
        let shard = shards.get(&name).copied().unwrap_or(name.shard);
        posts[shard as usize].send(message);
    }

    /// Sends to every shard, and so to every connection exactly once.
    pub(crate) fn broadcast(&self, posts: &[Post], mut message: impl FnMut() -> Message) {
        let _order = self.lock();
        for post in posts {
            post.send(message());
        }
    }

    /// Keeps mail and other moves waiting.
    pub(crate) fn begin_move(&self) -> Move<'_> {
        Move(self.lock())
    }

    /// The connection of that name is no more.
    pub(crate) fn forget(&self, name: ConnectionAddress) {
        self.lock().remove(&name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectionAddress, u32>> {
        self.0.lock().expect("nothing panics under this lock")
    }
}

/// While it exists, nobody broadcasts, writes to connections of other shards, or moves any.
#[derive(Debug)]
pub(crate) struct Move<'a>(MutexGuard<'a, HashMap<ConnectionAddress, u32>>);

impl Move<'_> {
    /// From now on mail goes to this shard. The connection is to be sent before this is dropped.
    pub(crate) fn note(&mut self, name: ConnectionAddress, shard: u32) {
        self.0.insert(name, shard);
    }
}

#[cfg(test)]
mod tests {
    use longshore_reactor::wake::Waker;

    use super::*;
    use crate::mail::mailbox::post_box;
    use crate::mail::message::Note;

    const NAME: ConnectionAddress = ConnectionAddress {
        shard: 0,
        slot: 5,
        generation: 2,
    };

    #[test]
    fn mail_goes_where_the_connection_went() {
        let (one, mut first) = post_box::<Message>(Waker::new().expect("an eventfd"));
        let (two, mut second) = post_box::<Message>(Waker::new().expect("an eventfd"));
        let posts = [one, two].map(Post::new);
        let addresses = ConnectionAddresses::default();
        addresses.send(&posts, NAME, Message::CloseConnection(NAME));
        assert!(matches!(
            first.receive(),
            Some(Message::CloseConnection(NAME))
        ));
        addresses.begin_move().note(NAME, 1);
        addresses.send(&posts, NAME, Message::CloseConnection(NAME));
        assert!(first.receive().is_none());
        assert!(matches!(
            second.receive(),
            Some(Message::CloseConnection(NAME))
        ));
        addresses.forget(NAME);
        addresses.send(&posts, NAME, Message::Note(NAME, Note::ControllerEvents));
        assert!(first.receive().is_some());
    }

    /// A broadcast and a move, at the same time, again and again: whoever is first, the new shard reads the
    /// broadcast with the connection exactly if the old one has not.
    #[test]
    fn a_broadcast_reaches_a_moving_connection_exactly_once() {
        for _ in 0..2000 {
            let (one, mut first) = post_box::<Message>(Waker::new().expect("an eventfd"));
            let (two, mut second) = post_box::<Message>(Waker::new().expect("an eventfd"));
            let posts = [one, two].map(Post::new);
            let addresses = ConnectionAddresses::default();
            let mut reached = 0;
            std::thread::scope(|scope| {
                scope.spawn(|| addresses.broadcast(&posts, || Message::MakeRoom));
                // The old shard, which has the connection.
                loop {
                    reached += std::iter::from_fn(|| first.receive()).count();
                    let mut order = addresses.begin_move();
                    if first.is_empty() {
                        order.note(NAME, 1);
                        // It stands for the connection.
                        posts[1].send(Message::CloseConnection(NAME));
                        break;
                    }
                }
            });
            let mut is_here = false;
            while let Some(message) = second.receive() {
                match message {
                    Message::CloseConnection(_) => is_here = true,
                    _ => reached += usize::from(is_here),
                }
            }
            assert_eq!(reached, 1);
        }
    }
}
