//! What a shard reads: messages of all kinds, and connections that come to it.

use crate::connection::driven::Driven;
use crate::mail::mailbox;
use crate::mail::message::Message;

/// Sends to one shard.
pub(crate) type Mailer = mailbox::Mailer<Mail>;
/// A shard's end.
pub(crate) type Inbox = mailbox::Inbox<Mail>;

/// Mail for a shard.
#[derive(Debug)]
pub(crate) enum Mail {
    Message(Message),
    /// A connection that was another shard's is yours.
    Moved(Box<dyn Driven>),
}

impl From<Message> for Mail {
    fn from(message: Message) -> Self {
        Self::Message(message)
    }
}
