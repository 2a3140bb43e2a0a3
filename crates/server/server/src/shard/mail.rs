//! The mailboxes of a shard: messages, arriving connections, new exports.

use std::sync::Arc;

use crate::connection::driven::Driven;
use crate::core::View;
use crate::mail::grace::Token;
use crate::mail::mailbox;
use crate::mail::message::Message;

/// Sends to one shard.
pub(crate) type Mailer = mailbox::Mailer<Mail>;
pub(crate) type Inbox = mailbox::Inbox<Mail>;

/// Mail for a shard.
#[derive(Debug)]
pub(crate) enum Mail {
    Message(Message),
    /// This is exported from now on.
    Exports {
        view: Arc<View>,
        token: Arc<Token>,
    },
    /// A connection that was another shard's is yours.
    Moved(Box<dyn Driven>),
}

impl From<Message> for Mail {
    fn from(message: Message) -> Self {
        Self::Message(message)
    }
}
