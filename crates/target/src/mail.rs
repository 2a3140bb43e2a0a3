//! Mail between shards that is never lost.
//!
//! The reactor's mailboxes are bounded and lock-free. Messages here are control traffic, each of which
//! somebody waits for, so one that finds its mailbox full goes to an overflow list behind a lock. What
//! one shard sends arrives in the order in which it was sent all the same.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use longshore_reactor::mail::{Mailbox, SendError, Sender, mailbox};
use longshore_reactor::wake::Waker;

use crate::message::Message;

/// Unread messages a shard may have before the overflow list is used.
const MAILBOX_CAPACITY: usize = 1024;

/// What found the mailbox full, oldest first.
#[derive(Debug, Default)]
struct Overflow {
    messages: Mutex<VecDeque<Message>>,
    /// There are some: later messages queue up behind them. Changed under the lock.
    in_use: AtomicBool,
}

impl Overflow {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Message>> {
        self.messages
            .lock()
            .expect("nothing panics under this lock")
    }

    fn push(&self, message: Message) {
        let mut messages = self.lock();
        messages.push_back(message);
        self.in_use.store(true, Ordering::Release);
    }
}

/// Sends to one shard. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    sender: Sender<Message>,
    overflow: Arc<Overflow>,
    waker: Waker,
}

/// A shard's end.
#[derive(Debug)]
pub(crate) struct Inbox {
    mailbox: Mailbox<Message>,
    overflow: Arc<Overflow>,
}

/// Makes the two ends; `waker` is the receiving shard's.
pub(crate) fn post_box(waker: Waker) -> (Post, Inbox) {
    let (sender, mailbox) = mailbox(MAILBOX_CAPACITY, waker.clone());
    let overflow = Arc::<Overflow>::default();
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
        let _ = self.hand_over(message);
    }

    /// Delivers `message`, or gives it back if the shard has ended.
    pub(crate) fn hand_over(&self, message: Message) -> Result<(), Message> {
        if self.overflow.in_use.load(Ordering::Acquire) {
            self.overflow.push(message);
            self.waker.wake();
            return Ok(());
        }
        match self.sender.send(message) {
            Ok(()) => {}
            Err(SendError::Closed(message)) => return Err(message),
            Err(SendError::Full(message)) => {
                self.overflow.push(message);
                self.waker.wake();
            }
        }
        Ok(())
    }
}

impl Inbox {
    /// Whether nothing waits to be read.
    pub(crate) fn is_empty(&self) -> bool {
        self.mailbox.is_empty() && self.overflow.lock().is_empty()
    }

    /// The next message.
    pub(crate) fn receive(&mut self) -> Option<Message> {
        if let Some(message) = self.mailbox.receive() {
            return Some(message);
        }
        let mut overflow = self.overflow.lock();
        // Whoever sent something to the overflow list may have filled the mailbox just before.
        if let Some(message) = self.mailbox.receive() {
            return Some(message);
        }
        let message = overflow.pop_front();
        if overflow.is_empty() {
            self.overflow.in_use.store(false, Ordering::Release);
        }
        message
    }
}

impl Drop for Inbox {
    /// As a mailbox's: a connection among the messages may hold a sending end itself.
    fn drop(&mut self) {
        let messages = std::mem::take(&mut *self.overflow.lock());
        drop(messages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Note;

    #[test]
    fn no_message_is_lost_when_the_mailbox_is_full() {
        let (post, mut inbox) = post_box(Waker::new().expect("an eventfd"));
        let sent = MAILBOX_CAPACITY * 2 + 3;
        for _ in 0..sent {
            post.send(Message::Shutdown);
        }
        assert_eq!(std::iter::from_fn(|| inbox.receive()).count(), sent);
    }

    fn target_of(message: &Message) -> usize {
        match message {
            Message::NoteForAll(Note::TargetReset(number)) => *number,
            other => panic!("{other:?} was not sent"),
        }
    }

    #[test]
    fn messages_of_one_sender_arrive_in_order_when_the_mailbox_is_full() {
        let (post, mut inbox) = post_box(Waker::new().expect("an eventfd"));
        let full = MAILBOX_CAPACITY * 2;
        for number in 0..full {
            post.send(Message::NoteForAll(Note::TargetReset(number)));
        }
        // Some room in the mailbox is no reason to overtake.
        for number in 0..10 {
            assert_eq!(inbox.receive().as_ref().map(target_of), Some(number));
        }
        for number in full..full + 10 {
            post.send(Message::NoteForAll(Note::TargetReset(number)));
        }
        for number in 10..full + 10 {
            assert_eq!(inbox.receive().as_ref().map(target_of), Some(number));
        }
        assert!(inbox.is_empty());
        post.send(Message::NoteForAll(Note::TargetReset(0)));
        assert!(!inbox.overflow.in_use.load(Ordering::Acquire));
        assert_eq!(inbox.receive().as_ref().map(target_of), Some(0));
    }

    #[test]
    fn order_holds_while_the_receiver_reads() {
        let (post, mut inbox) = post_box(Waker::new().expect("an eventfd"));
        let sent = 100_000;
        let sender = std::thread::spawn(move || {
            for number in 0..sent {
                post.send(Message::NoteForAll(Note::TargetReset(number)));
            }
        });
        let mut expected = 0;
        while expected < sent {
            match inbox.receive() {
                Some(message) => {
                    assert_eq!(target_of(&message), expected);
                    expected += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        sender.join().expect("it sends");
    }
}
