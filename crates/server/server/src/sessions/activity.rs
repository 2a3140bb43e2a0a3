//! The pause between the last write of an ended session and the first command of its successor.
//!
//! A write of a session or queue that ended may still be on its way to the medium. If the same initiator or host
//! reconnected and wrote again, that write could overwrite a newer one and restore old data. So an [`Activity`] is
//! held by the sender of commands and by each of its storage operations. Commands of a successor wait until the last
//! reference is dropped.

use std::sync::{Arc, Mutex};

use crate::address::ConnectionAddress;
use crate::mail::message::Post;
use crate::mail::message::{Message, Note};

/// Lives as long as anything of its owner can still act. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Who waits for its end.
    successors: Mutex<Vec<Arc<Successor>>>,
    /// What ends with it: held, not read.
    _end: Option<Box<dyn Send + Sync + AtEnd>>,
}

/// Something whose drop is to happen at the end of an activity.
pub(crate) trait AtEnd: std::fmt::Debug {}

impl Activity {
    /// An activity at whose end, after its successors were told, `end` is dropped.
    pub(crate) fn with_end(end: impl AtEnd + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            successors: Mutex::default(),
            _end: Some(Box::new(end)),
        })
    }

    /// Holds back the commands of a connection until none of `earlier` is left: that shard's post is
    /// told so then.
    pub(crate) fn hold(earlier: &[Arc<Self>], post: &Post, connection: ConnectionAddress) {
        if earlier.is_empty() {
            return;
        }
        let successor = Arc::new(Successor {
            post: post.clone(),
            connection,
        });
        for activity in earlier {
            activity
                .successors
                .lock()
                .expect("nothing panics under this lock")
                .push(Arc::clone(&successor));
        }
    }
}

/// Lives as long as any activity that a connection waits for refers to it.
#[derive(Debug)]
struct Successor {
    post: Post,
    connection: ConnectionAddress,
}

impl Drop for Successor {
    fn drop(&mut self) {
        self.post
            .send(Message::Note(self.connection, Note::PredecessorsEnded));
    }
}

#[cfg(test)]
mod tests {
    use longshore_reactor::wake::Waker;

    use super::*;
    use crate::mail::mailbox::post_box;

    const CONNECTION: ConnectionAddress = ConnectionAddress {
        shard: 0,
        slot: 3,
        generation: 1,
    };

    #[derive(Debug)]
    struct Ends(#[expect(dead_code, reason = "counted")] Arc<()>);

    impl AtEnd for Ends {}

    #[test]
    fn a_successor_is_told_when_the_last_of_all_lives_before_it_has_ended() {
        let (mailer, mut inbox) = post_box::<Message>(Waker::new().expect("an eventfd"));
        let post = Post::new(mailer);
        let witness = Arc::new(());
        let one = Activity::with_end(Ends(Arc::clone(&witness)));
        let other = Arc::<Activity>::default();
        let write = Arc::clone(&one);
        Activity::hold(&[Arc::clone(&one), Arc::clone(&other)], &post, CONNECTION);
        drop((one, other));
        assert!(inbox.is_empty());
        assert_eq!(Arc::strong_count(&witness), 2);
        drop(write);
        assert!(matches!(
            inbox.receive(),
            Some(Message::Note(CONNECTION, Note::PredecessorsEnded))
        ));
        assert_eq!(Arc::strong_count(&witness), 1);
    }

    #[test]
    fn nobody_is_told_when_there_is_nothing_to_wait_for() {
        let (mailer, inbox) = post_box::<Message>(Waker::new().expect("an eventfd"));
        let post = Post::new(mailer);
        Activity::hold(&[], &post, CONNECTION);
        assert!(inbox.is_empty());
    }
}
