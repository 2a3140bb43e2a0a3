//! Messages between threads, delivered to a reactor's [`Engine`](crate::Engine).
//!
//! A mailbox is bounded and lock-free; sending neither allocates nor, unless the receiver sleeps,
//! enters the kernel. After [`EngineEvent::Woken`](crate::EngineEvent::Woken) the receiver empties its mailboxes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;

use crate::wake::Waker;

/// Makes a mailbox for up to `capacity` unread messages. `waker` belongs to the engine of the
/// receiver.
///
/// # Panics
/// If `capacity` is zero.
#[must_use]
pub fn mailbox<M: Send>(capacity: usize, waker: Waker) -> (Sender<M>, Mailbox<M>) {
    let queue = Arc::new(ArrayQueue::new(capacity));
    let open = Arc::new(AtomicBool::new(true));
    (
        Sender {
            queue: queue.clone(),
            open: open.clone(),
            waker,
        },
        Mailbox { queue, open },
    )
}

/// The receiving end. Belongs to one reactor.
#[derive(Debug)]
pub struct Mailbox<M> {
    queue: Arc<ArrayQueue<M>>,
    open: Arc<AtomicBool>,
}

impl<M> Mailbox<M> {
    /// The oldest unread message.
    pub fn receive(&mut self) -> Option<M> {
        self.queue.pop()
    }

    /// Whether there is no unread message at this moment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

impl<M> Drop for Mailbox<M> {
    /// Unread messages are dropped with what they own, not when the last sender goes.
    fn drop(&mut self) {
        self.open.store(false, Ordering::SeqCst);
        while self.queue.pop().is_some() {}
    }
}

/// A sending end. Clones send to the same mailbox.
#[derive(Debug)]
pub struct Sender<M> {
    queue: Arc<ArrayQueue<M>>,
    open: Arc<AtomicBool>,
    waker: Waker,
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            open: self.open.clone(),
            waker: self.waker.clone(),
        }
    }
}

impl<M> Sender<M> {
    /// Puts a message into the mailbox and wakes its reactor if it sleeps. Never blocks.
    ///
    /// Messages of one sender arrive in order. A message sent while the receiver is being dropped
    /// may be dropped with it.
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        if !self.open.load(Ordering::SeqCst) {
            return Err(SendError::Closed(message));
        }
        self.queue.push(message).map_err(SendError::Full)?;
        if !self.open.load(Ordering::SeqCst) {
            // The receiver may have emptied the queue before this message came.
            while self.queue.pop().is_some() {}
        }
        self.waker.wake();
        Ok(())
    }
}

/// Why a message was not delivered; gives it back.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError<M> {
    /// The receiver is behind. Try again later.
    #[error("mailbox is full")]
    Full(M),
    /// The receiver is gone.
    #[error("mailbox is closed")]
    Closed(M),
}

impl<M> std::fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_order() {
        let (sender, mut mailbox) = mailbox(4, Waker::new().unwrap());
        sender.send(1).unwrap();
        sender.clone().send(2).unwrap();
        assert_eq!((mailbox.receive(), mailbox.receive()), (Some(1), Some(2)));
        assert_eq!(mailbox.receive(), None);
    }

    #[test]
    fn full_mailbox_gives_the_message_back() {
        let (sender, mut mailbox) = mailbox(1, Waker::new().unwrap());
        sender.send('a').unwrap();
        assert_eq!(sender.send('b'), Err(SendError::Full('b')));
        assert_eq!(mailbox.receive(), Some('a'));
        sender.send('b').unwrap();
    }

    #[test]
    fn mailbox_of_a_dropped_receiver_is_closed() {
        let (sender, mailbox) = mailbox(1, Waker::new().unwrap());
        drop(mailbox);
        assert_eq!(sender.send(()), Err(SendError::Closed(())));
    }

    #[test]
    fn unread_messages_are_dropped_with_the_mailbox() {
        let (sender, mailbox) = mailbox(1, Waker::new().unwrap());
        let message = Arc::new(());
        sender.send(message.clone()).unwrap();
        drop(mailbox);
        assert_eq!(Arc::strong_count(&message), 1);
    }
}
