//! Mail between shards that is never lost.
//!
//! The reactor's mailboxes are bounded and lock-free. Messages here are control traffic with a waiter each, so a
//! message to a full mailbox goes to an overflow list behind a lock. What one shard sends arrives in the order in
//! which it was sent all the same.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use longshore_reactor::mail::{Mailbox, SendError, Sender, mailbox};
use longshore_reactor::wake::Waker;

use super::message::{Deliver, Message};

/// Unread messages a shard may have before the overflow list is used.
const MAILBOX_CAPACITY: usize = 1024;

/// What found the mailbox full.
#[derive(Debug)]
struct Overflow<M> {
    unread: Mutex<Unread<M>>,
    /// There are some: later messages queue up behind them. Changed under the lock.
    in_use: AtomicBool,
}

#[derive(Debug)]
struct Unread<M> {
    messages: VecDeque<M>,
    /// Nobody reads any more.
    is_closed: bool,
}

impl<M> Overflow<M> {
    fn lock(&self) -> MutexGuard<'_, Unread<M>> {
        self.unread.lock().expect("nothing panics under this lock")
    }

    /// Queues a message, or gives it back if nobody will read it.
    fn push(&self, message: M) -> Result<(), M> {
        let mut unread = self.lock();
        if unread.is_closed {
            return Err(message);
        }
        unread.messages.push_back(message);
        self.in_use.store(true, Ordering::Release);
        Ok(())
    }
}

/// Sends to one shard. Cheap to clone.
#[derive(Debug)]
pub(crate) struct Mailer<M> {
    sender: Sender<M>,
    overflow: Arc<Overflow<M>>,
    waker: Waker,
}

#[derive(Debug)]
pub(crate) struct Inbox<M> {
    mailbox: Mailbox<M>,
    overflow: Arc<Overflow<M>>,
}

/// Makes the two ends; `waker` is the receiving shard's.
pub(crate) fn post_box<M: Send>(waker: Waker) -> (Mailer<M>, Inbox<M>) {
    let (sender, mailbox) = mailbox(MAILBOX_CAPACITY, waker.clone());
    let overflow = Arc::new(Overflow {
        unread: Mutex::new(Unread {
            messages: VecDeque::new(),
            is_closed: false,
        }),
        in_use: AtomicBool::new(false),
    });
    (
        Mailer {
            sender,
            overflow: Arc::clone(&overflow),
            waker,
        },
        Inbox { mailbox, overflow },
    )
}

impl<M> Clone for Mailer<M> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            overflow: Arc::clone(&self.overflow),
            waker: self.waker.clone(),
        }
    }
}

impl<M> Mailer<M> {
    /// Delivers `message`, or gives it back if the shard has ended. If it ends at this moment, what was
    /// delivered is dropped unread.
    pub(crate) fn hand_over(&self, message: M) -> Result<(), M> {
        let message = if self.overflow.in_use.load(Ordering::Acquire) {
            message
        } else {
            match self.sender.send(message) {
                Ok(()) => return Ok(()),
                Err(SendError::Closed(message)) => return Err(message),
                Err(SendError::Full(message)) => message,
            }
        };
        self.overflow.push(message)?;
        self.waker.wake();
        Ok(())
    }
}

impl<M: From<Message> + Debug + Send> Deliver for Mailer<M> {
    fn deliver(&self, message: Message) {
        let _ = self.hand_over(M::from(message));
    }
}

impl<M> Inbox<M> {
    /// Whether nothing waits to be read.
    pub(crate) fn is_empty(&self) -> bool {
        self.mailbox.is_empty() && self.overflow.lock().messages.is_empty()
    }

    pub(crate) fn receive(&mut self) -> Option<M> {
        if let Some(message) = self.mailbox.receive() {
            return Some(message);
        }
        let mut overflow = self.overflow.lock();
        // Whoever sent something to the overflow list may have filled the mailbox just before.
        if let Some(message) = self.mailbox.receive() {
            return Some(message);
        }
        let message = overflow.messages.pop_front();
        if overflow.messages.is_empty() {
            self.overflow.in_use.store(false, Ordering::Release);
        }
        message
    }
}

impl<M> Drop for Inbox<M> {
    /// As a mailbox's: a connection among the messages may hold a sending end itself.
    fn drop(&mut self) {
        let closed = Unread {
            messages: VecDeque::new(),
            is_closed: true,
        };
        let unread = std::mem::replace(&mut *self.overflow.lock(), closed);
        // Without the lock: what a message owns may send, too.
        drop(unread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::TargetId;
    use crate::mail::message::Note;

    #[test]
    fn no_message_is_lost_when_the_mailbox_is_full() {
        let (post, mut inbox) = post_box::<Message>(Waker::new().expect("an eventfd"));
        let sent = MAILBOX_CAPACITY * 2 + 3;
        for _ in 0..sent {
            post.deliver(Message::Shutdown);
        }
        assert_eq!(std::iter::from_fn(|| inbox.receive()).count(), sent);
    }

    fn target_of(message: &Message) -> u32 {
        match message {
            Message::NoteForAll(Note::TargetReset(TargetId(number))) => *number,
            other => panic!("{other:?} was not sent"),
        }
    }

    #[test]
    fn messages_of_one_sender_arrive_in_order_when_the_mailbox_is_full() {
        let (post, mut inbox) = post_box::<Message>(Waker::new().expect("an eventfd"));
        let full = u32::try_from(MAILBOX_CAPACITY * 2).unwrap();
        for number in 0..full {
            post.deliver(Message::NoteForAll(Note::TargetReset(TargetId(number))));
        }
        // Some room in the mailbox is no reason to overtake.
        for number in 0..10 {
            assert_eq!(inbox.receive().as_ref().map(target_of), Some(number));
        }
        for number in full..full + 10 {
            post.deliver(Message::NoteForAll(Note::TargetReset(TargetId(number))));
        }
        for number in 10..full + 10 {
            assert_eq!(inbox.receive().as_ref().map(target_of), Some(number));
        }
        assert!(inbox.is_empty());
        post.deliver(Message::NoteForAll(Note::TargetReset(TargetId(0))));
        assert!(!inbox.overflow.in_use.load(Ordering::Acquire));
        assert_eq!(inbox.receive().as_ref().map(target_of), Some(0));
    }

    #[test]
    fn whoever_sends_to_a_shard_that_has_ended_gets_the_message_back() {
        for unread in [0, 1, MAILBOX_CAPACITY, MAILBOX_CAPACITY + 1] {
            let (post, inbox) = post_box::<Message>(Waker::new().expect("an eventfd"));
            for number in 0..u32::try_from(unread).unwrap() {
                let sent = post.hand_over(Message::NoteForAll(Note::TargetReset(TargetId(number))));
                assert!(sent.is_ok(), "{number} of {unread}");
            }
            drop(inbox);
            for number in 0..3 {
                let sent = post.hand_over(Message::NoteForAll(Note::TargetReset(TargetId(number))));
                let back = sent.expect_err("nobody reads it");
                assert_eq!(target_of(&back), number, "after {unread}");
            }
            assert!(post.overflow.lock().messages.is_empty());
        }
    }

    #[test]
    fn order_holds_while_the_receiver_reads() {
        let (post, mut inbox) = post_box::<Message>(Waker::new().expect("an eventfd"));
        let sent = 100_000;
        let sender = std::thread::spawn(move || {
            for number in 0..sent {
                post.deliver(Message::NoteForAll(Note::TargetReset(TargetId(number))));
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
