//! Servers of the other protocol behind a URL.
//!
//! A target that gets an ICReq, or a controller that gets a login, closes the connection, answers with
//! something senseless, or says nothing until the time is over. So a portal that does not answer as it
//! should is greeted in the other protocol, on a connection of its own; if it understands that, the URL is
//! wrong, and the error says which one to use.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::attach::{Attachment, attach_path};
use crate::connect::connect;
use crate::error::Error;
use crate::info::Protocol;
use crate::options::Options;
use crate::url::{HostPort, Url};
use crate::{iscsi, nvme};

/// A portal that has not answered for so long is greeted in the other protocol meanwhile.
const SILENCE: Duration = Duration::from_secs(1);

/// How long that greeting may take: connecting, and then the answer.
const GREETING: Duration = Duration::from_secs(1);

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
    let (owned_url, owned_options) = (url.clone(), options.clone());
    let attaching = thread::Builder::new()
        .name("attach".to_owned())
        .spawn(move || {
            // Nobody takes it when the protocol turned out to be the other one; then it ends by its time-outs.
            let _ = sender.send(attach_path(&owned_url, portal, &owned_options));
        });
    if attaching.is_err() {
        return attach_path(url, portal, options);
    }
    let ended = "attaching ends with a result";
    let mut is_greeted = false;
    let result = match receiver.recv_timeout(SILENCE) {
        Ok(result) => result,
        Err(RecvTimeoutError::Disconnected) => panic!("{ended}"),
        Err(RecvTimeoutError::Timeout) => {
            is_greeted = true;
            if let Some(error) = recognize(url, portal, options) {
                return Err(error);
            }
            receiver.recv().expect(ended)
        }
    };
    match result {
        Err(error) if !is_greeted && is_no_greeting(&error) => {
            Err(recognize(url, portal, options).unwrap_or(error))
        }
        other => other,
    }
}

/// Whether this is how it ends when the first thing that is said is not understood.
fn is_no_greeting(error: &Error) -> bool {
    match error {
        Error::TimedOut { step, .. } | Error::Lost { step, .. } | Error::Protocol { step, .. } => {
            matches!(*step, "initialization" | "login")
        }
        _ => false,
    }
}

/// The error to report, if the portal speaks the other protocol.
fn recognize(url: &Url, portal: usize, options: &Options) -> Option<Error> {
    let portal = url.portals().get(portal)?.clone();
    let (asked, spoken) = match url {
        Url::Iscsi(_) => (Protocol::Iscsi, Protocol::NvmeTcp),
        Url::NvmeTcp(_) => (Protocol::NvmeTcp, Protocol::Iscsi),
    };
    let answers = match spoken {
        Protocol::Iscsi => answers_iscsi(&portal, options),
        Protocol::NvmeTcp => answers_nvme(&portal),
    };
    answers.then_some(Error::OtherProtocol {
        portal,
        asked,
        spoken,
    })
}

/// Whether a login for discovery, without credentials, is answered in whatever way.
fn answers_iscsi(portal: &HostPort, options: &Options) -> bool {
    let mut options = options.clone();
    options.timeouts.connect = GREETING;
    options.timeouts.login = GREETING;
    (options.chap, options.mutual_chap) = (None, None);
    match iscsi::greet(portal, &options) {
        Ok(()) => true,
        Err(error) => matches!(
            error,
            Error::Refused { .. } | Error::Authentication { .. } | Error::NotGranted { .. }
        ),
    }
}

fn answers_nvme(portal: &HostPort) -> bool {
    connect(portal, GREETING).is_ok_and(|(stream, _)| nvme::greet(stream, GREETING))
}
