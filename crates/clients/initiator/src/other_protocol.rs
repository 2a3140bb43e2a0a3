//! Servers of the other protocol behind a URL.
//!
//! A target that receives an ICReq, or a controller that receives a login, closes the connection,
//! answers with nonsense, or stays silent. So where a portal does not answer as expected, a second
//! connection greets it in the other protocol. If that is answered, the URL is wrong, and the error
//! names the right form.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::attach_path::attach_path;
use crate::attachment::Attachment;
use crate::connect::connect;
use crate::error::Error;
use crate::info::Protocol;
use crate::options::Options;
use crate::url::{HostPort, Url};
use crate::{iscsi, nvme};

/// Silence of a portal after which it is greeted in the other protocol as well.
const SILENCE: Duration = Duration::from_secs(1);

/// How long the first of these greetings may take: connecting, and then the answer. Each of the next ones
/// may take twice as long: the portal, or this machine, may be busy.
const GREETING: Duration = Duration::from_secs(1);

/// How long the last of them may take.
const GREETING_MAX: Duration = Duration::from_secs(32);

/// Reports of the threads of [`attach_first`].
enum News {
    /// The end of attaching.
    Attached(Box<Result<Attachment, Error>>),
    /// The portal speaks the other protocol.
    Recognized(Error),
}

/// Attaches like [`attach_path`], for the first time: a portal of the other protocol is recognized.
///
/// # Errors
/// Says where, why, and what to do next.
pub(crate) fn attach_first(
    url: &Url,
    portal: usize,
    options: &Options,
) -> Result<Attachment, Error> {
    let (sender, receiver) = channel();
    let (owned_url, owned_options, news) = (url.clone(), options.clone(), sender.clone());
    let attaching = thread::Builder::new()
        .name("attach".to_owned())
        .spawn(move || {
            // Where the other protocol was recognized there is no receiver any more.
            let attached = attach_path(&owned_url, portal, &owned_options);
            let _ = news.send(News::Attached(Box::new(attached)));
        });
    if attaching.is_err() {
        return attach_path(url, portal, options);
    }
    let ended = "attaching ends with a result";
    let mut is_greeted = false;
    let news = match receiver.recv_timeout(SILENCE) {
        Ok(news) => news,
        Err(RecvTimeoutError::Disconnected) => panic!("{ended}"),
        Err(RecvTimeoutError::Timeout) => {
            // Greetings end when this is dropped.
            let (_going_on, end) = channel();
            is_greeted = greet_meanwhile(url, portal, options, sender, end);
            receiver.recv().expect(ended)
        }
    };
    let attached = match news {
        News::Recognized(error) => return Err(error),
        News::Attached(attached) => *attached,
    };
    match attached {
        Err(error) if is_no_greeting(&error) => Err(if is_greeted {
            // A greeting under way may still be answered.
            match receiver.recv_timeout(2 * GREETING) {
                Ok(News::Recognized(better)) => better,
                _ => error,
            }
        } else {
            recognize(url, portal, options, GREETING).unwrap_or(error)
        }),
        other => other,
    }
}

/// Greets the portal in the other protocol, on a thread of its own, until it answers or the sender of `end`
/// is dropped. Tells whether that could begin.
fn greet_meanwhile(
    url: &Url,
    portal: usize,
    options: &Options,
    news: Sender<News>,
    end: Receiver<()>,
) -> bool {
    let (url, options) = (url.clone(), options.clone());
    let greeting = thread::Builder::new().name("greet".to_owned());
    let greeting = greeting.spawn(move || {
        let mut limit = GREETING;
        while limit <= GREETING_MAX {
            if let Some(error) = recognize(&url, portal, &options, limit) {
                // Where attaching has ended meanwhile there is no receiver any more.
                let _ = news.send(News::Recognized(error));
                return;
            }
            // An answer that comes at once, and is no greeting, will hardly change soon.
            if end.recv_timeout(limit) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            limit = limit.saturating_mul(2);
        }
    });
    greeting.is_ok()
}

/// Whether this is how it ends when the first thing that is said is not understood.
fn is_no_greeting(error: &Error) -> bool {
    match error {
        Error::TimedOut { step, .. } | Error::Lost { step, .. } | Error::Protocol { step, .. } => {
            matches!(*step, "initialization" | "login")
        }
        Error::Url(_)
        | Error::Resolve { .. }
        | Error::Connect { .. }
        | Error::OtherProtocol { .. }
        | Error::Refused { .. }
        | Error::Authentication { .. }
        | Error::NotFound { .. }
        | Error::NotGranted { .. }
        | Error::Command { .. }
        | Error::Unusable { .. }
        | Error::AllPortals(_)
        | Error::Options(_)
        | Error::System { .. } => false,
    }
}

/// The error to report, if the portal speaks the other protocol.
fn recognize(url: &Url, portal: usize, options: &Options, limit: Duration) -> Option<Error> {
    let portal = url.portals().get(portal)?.clone();
    let (asked, spoken) = match url {
        Url::Iscsi(_) => (Protocol::Iscsi, Protocol::NvmeTcp),
        Url::NvmeTcp(_) => (Protocol::NvmeTcp, Protocol::Iscsi),
    };
    let answers = match spoken {
        Protocol::Iscsi => answers_iscsi(&portal, options, limit),
        Protocol::NvmeTcp => answers_nvme(&portal, limit),
    };
    answers.then_some(Error::OtherProtocol {
        portal,
        asked,
        spoken,
    })
}

/// Whether a login for discovery, without credentials, is answered in whatever way.
fn answers_iscsi(portal: &HostPort, options: &Options, limit: Duration) -> bool {
    let mut options = options.clone();
    options.timeouts.connect = limit;
    options.timeouts.login = limit;
    (options.chap, options.mutual_chap) = (None, None);
    match iscsi::greet(portal, &options) {
        Ok(()) => true,
        Err(error) => matches!(
            error,
            Error::Refused { .. } | Error::Authentication { .. } | Error::NotGranted { .. }
        ),
    }
}

fn answers_nvme(portal: &HostPort, limit: Duration) -> bool {
    connect(portal, limit).is_ok_and(|(stream, _)| nvme::greet(stream.into(), limit))
}
