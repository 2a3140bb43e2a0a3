//! The quiet between the last write of one that is gone and the first command of its successor.
//!
//! A write of a session that ended may still be on its way to the medium. If the same initiator came
//! back and wrote anew, that write could land on top of a newer one and silently bring back old data.
//! So a [`Life`] is held by whoever sends commands and by every storage operation that outlives it,
//! and a successor's commands wait until the last reference is gone.

use std::sync::{Arc, Mutex};

use crate::mail::Post;
use crate::message::{ConnectionAddress, Message, Note};

/// Lives as long as anything of its owner can still act. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// Who waits for its end.
    successors: Mutex<Vec<Arc<Hold>>>,
}

impl Life {
    /// Holds back the commands of a connection until none of `earlier` is left: that shard's post is
    /// told so then.
    pub(crate) fn hold(earlier: &[Arc<Self>], post: &Post, connection: ConnectionAddress) {
        if earlier.is_empty() {
            return;
        }
        let hold = Arc::new(Hold {
            post: post.clone(),
            connection,
        });
        for life in earlier {
            life.successors
                .lock()
                .expect("nothing panics under this lock")
                .push(Arc::clone(&hold));
        }
    }
}

/// Lives as long as any life that a connection waits for refers to it.
#[derive(Debug)]
struct Hold {
    post: Post,
    connection: ConnectionAddress,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.post
            .send(Message::Note(self.connection, Note::PredecessorsEnded));
    }
}
