//! In-band authentication (DH-HMAC-CHAP) of a queue whose Connect has succeeded.

use std::time::Duration;

use longshore_nvme::auth::{
    Answer, Failure, Host, HostError, Parties, QueueChannel, RECEIVE_LENGTH, SecureChannel,
};
use longshore_nvme::host::commands;
use longshore_nvme::psk::RetainedPsk;

use longshore_nvme::status::Status;

use super::failure::link_error;
use super::link::{Deadline, Link};
use super::refusal::{self, Demand};
use crate::error::Error;
use crate::options::Options;
use crate::url::HostPort;

/// Pauses before a message is sent again that the controller had no time for; each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What a host proves itself with, on any queue of an association.
pub(super) struct Proof<'a> {
    portal: &'a HostPort,
    parties: Parties,
    options: &'a Options,
}

fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel gives random bytes");
}

impl<'a> Proof<'a> {
    pub(super) const fn new(portal: &'a HostPort, parties: Parties, options: &'a Options) -> Self {
        Self {
            portal,
            parties,
            options,
        }
    }

    /// Does what the controller asks for, and has it prove itself if its secret is known. Returns the key for TLS, if the queue
    /// is one that makes it.
    ///
    /// # Errors
    /// The connection is of no use.
    pub(super) fn give(
        &self,
        link: &mut Link,
        demand: Demand,
        channel: QueueChannel,
    ) -> Result<Option<RetainedPsk>, Error> {
        let nvme = &self.options.nvme;
        let is_discovery = self.parties.subsystem.is_discovery();
        let wants_key = nvme.concatenate && !is_discovery || demand == Demand::SecureChannel;
        let secure_channel = match channel {
            QueueChannel::Plain if wants_key => SecureChannel::New,
            QueueChannel::Plain | QueueChannel::Secure | QueueChannel::Other => SecureChannel::None,
        };
        match (demand, &nvme.secret, &nvme.controller_secret) {
            // A key that was made of both proofs stands for them.
            (Demand::Nothing, ..) if channel == QueueChannel::Secure => return Ok(None),
            (Demand::Nothing, _, None) if !secure_channel.makes_key() => return Ok(None),
            (Demand::Nothing, ..) if !secure_channel.makes_key() => {
                return Err(self.failed(
                    "the controller does not ask for authentication, so it has not proved that it knows its \
                     secret",
                    "configure the secrets of this host at the server, or leave out --dhchap-ctrl-secret-file",
                ));
            }
            (Demand::SecureChannel, ..) if !secure_channel.makes_key() => {
                return Err(refusal::secure_channel(self.portal));
            }
            (_, None, _) => {
                return Err(self.failed(
                    "the subsystem requires NVMe in-band authentication (DH-HMAC-CHAP)",
                    "give the secret of this host with --dhchap-secret-file, or dhchap-secret-file of a volume",
                ));
            }
            (_, Some(_), _) => {}
        }
        let deadline = Deadline::after(self.options.timeouts.login);
        let mut transaction = [0; 2];
        random(&mut transaction);
        let Some(secret) = &nvme.secret else {
            unreachable!("the demand was looked at");
        };
        let theirs = nvme.controller_secret.as_ref();
        let mut host = Host::new(
            &self.parties,
            secret,
            theirs,
            u16::from_le_bytes(transaction),
        )
        .concatenating(secure_channel);
        let mut message = host.negotiate();
        loop {
            self.send(link, &message, deadline)?;
            let answer = self.receive(link, deadline)?;
            match host.handle(&answer, &mut random) {
                Answer::Reply(reply) => message = reply,
                Answer::Confirm(last) => {
                    self.send(link, &last, deadline)?;
                    break;
                }
                Answer::Done => break,
                Answer::Failed(last, error) => {
                    if let Some(last) = last {
                        // It ends either way.
                        let _ = self.send(link, &last, deadline);
                    }
                    return Err(self.failed(&error.to_string(), advice(error)));
                }
            }
        }
        Ok(host.take_generated().and_then(RetainedPsk::generated))
    }

    fn failed(&self, reason: &str, advice: &'static str) -> Error {
        Error::Authentication {
            portal: self.portal.clone(),
            reason: reason.to_owned(),
            advice,
        }
    }

    /// Sends a message, again and again while the controller has too much to compute for others.
    fn send(&self, link: &mut Link, message: &[u8], deadline: Deadline) -> Result<(), Error> {
        let step = "Authentication Send";
        let command = commands::authentication_send(message.len());
        let mut pause = PAUSE_MIN;
        loop {
            let answer = link.run(&command, message, deadline);
            let answer = answer.map_err(|error| link_error(self.portal, step, error))?;
            let is_late = deadline.left().is_none_or(|left| left <= pause);
            if answer.status != Status::COMMAND_INTERRUPTED || is_late {
                return self.check(step, answer.status).map(drop);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn receive(&self, link: &mut Link, deadline: Deadline) -> Result<Vec<u8>, Error> {
        let step = "Authentication Receive";
        let command = commands::authentication_receive(RECEIVE_LENGTH);
        let answer = link.run(&command, &[], deadline);
        let answer = answer.map_err(|error| link_error(self.portal, step, error))?;
        self.check(step, answer.status)?;
        Ok(answer.data)
    }

    fn check(&self, step: &'static str, status: Status) -> Result<(), Error> {
        match status.is_success() {
            true => Ok(()),
            false => Err(Error::Refused {
                portal: self.portal.clone(),
                step,
                reason: status.to_string(),
                advice: "check the server's log",
            }),
        }
    }
}

fn advice(error: HostError) -> &'static str {
    match error {
        HostError::Refused(Failure::FAILED) => {
            "compare the secrets of host and controller, and the host NQN, on both sides"
        }
        HostError::Refused(Failure::HASH_NOT_USABLE | Failure::GROUP_NOT_USABLE) => {
            "allow a hash function or group at the server that this host has"
        }
        HostError::Refused(Failure::CONCATENATION_MISMATCH) => {
            "have the server permit a key for TLS to be made (dhchap-secure-channel), or do not ask for one"
        }
        HostError::Refused(_) => "check the server's log",
        HostError::NotProved => {
            "compare the secret of --dhchap-ctrl-secret-file with the server's; if they are the same, something else \
             answers in its place"
        }
        HostError::Malformed
        | HostError::HashNotOffered
        | HostError::GroupNotOffered
        | HostError::PublicValue => {
            "something that is not the server may answer in its place; check the network"
        }
        _ => "check the logs of both sides",
    }
}
