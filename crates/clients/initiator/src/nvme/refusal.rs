//! Refusals of Connect, with advice (NVMe base 2.0 §6.3, Figure 391).

use longshore_nvme::nqn::Nqn;
use longshore_nvme::status::Status;

use super::link::Answer;
use crate::error::Error;
use crate::url::HostPort;

/// Where a parameter is that Connect Invalid Parameters names: IPO, and IATTR tells command from data.
const SUBSYSTEM_NQN: (bool, u16) = (true, 256);
const HOST_NQN: (bool, u16) = (true, 512);
const HOST_ID: (bool, u16) = (true, 0);
const CONTROLLER_ID: (bool, u16) = (true, 16);
const QUEUE_ID: (bool, u16) = (false, 42);
const QUEUE_SIZE: (bool, u16) = (false, 44);
const ATTRIBUTES: (bool, u16) = (false, 46);
const KEEP_ALIVE: (bool, u16) = (false, 48);

fn parameter(answer: &Answer) -> Option<(bool, u16)> {
    if answer.status.code() != Status::CONNECT_INVALID_PARAMETERS {
        return None;
    }
    let [low, high, attributes, ..] = answer.result.to_le_bytes();
    Some((attributes & 1 != 0, u16::from_le_bytes([low, high])))
}

/// Whether CATTR was not taken: the request to do without flow control.
pub(super) fn is_attributes(answer: &Answer) -> bool {
    parameter(answer) == Some(ATTRIBUTES) || answer.status.code() == Status::INVALID_FIELD
}

/// What a controller asks of a host whose Connect has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    Nothing,
    /// ATR: the host has to authenticate.
    Authentication,
    /// ASCR: and to have a key for TLS made.
    SecureChannel,
}

/// Whether Connect has succeeded, and what is asked of the host then.
pub(super) fn check(portal: &HostPort, subsystem: &Nqn, answer: &Answer) -> Result<Demand, Error> {
    const AUTHENTICATION: u64 = 1 << 17;
    const SECURE_CHANNEL: u64 = 1 << 18;
    if answer.status.is_success() {
        // AUTHREQ.
        return match answer.result {
            result if result & SECURE_CHANNEL != 0 => Ok(Demand::SecureChannel),
            result if result & AUTHENTICATION != 0 => Ok(Demand::Authentication),
            _ => Ok(Demand::Nothing),
        };
    }
    let advice = match parameter(answer) {
        Some(SUBSYSTEM_NQN) => {
            return Err(Error::NotFound {
                portal: portal.clone(),
                wanted: format!("subsystem {subsystem}"),
                available: Vec::new(),
            });
        }
        Some(HOST_NQN) => "the host NQN is not accepted: give one that the subsystem allows",
        Some(HOST_ID) => "the host identifier is not accepted: give another one",
        Some(CONTROLLER_ID) => "the controller is gone: connect again",
        Some(QUEUE_ID) => "the queue is not granted: request fewer queues",
        Some(QUEUE_SIZE) => "the queue is too large: request less depth",
        Some(KEEP_ALIVE) => "the keep-alive time is not accepted: request another one",
        _ => advice(answer.status),
    };
    Err(Error::Refused {
        portal: portal.clone(),
        step: "Connect",
        reason: answer.status.to_string(),
        advice,
    })
}

fn advice(status: Status) -> &'static str {
    match status.code() {
        Status::CONNECT_INVALID_HOST => {
            "this host may not use the subsystem: add its host NQN there, or give one that is allowed"
        }
        Status::CONNECT_CONTROLLER_BUSY => "the controller is busy: try again later",
        Status::CONNECT_RESTART_DISCOVERY => "the subsystem may have moved: run discovery again",
        Status::CONNECT_INCOMPATIBLE_FORMAT => "the controller speaks another version of Connect",
        Status::KEEP_ALIVE_TIMEOUT_INVALID => "request another keep-alive time",
        Status::INVALID_QUEUE_SIZE => "request less depth",
        Status::AUTHENTICATION_REQUIRED => {
            "the subsystem requires DH-HMAC-CHAP: give the secret of this host with --dhchap-secret-file"
        }
        Status::INVALID_QUEUE_IDENTIFIER => "request fewer queues",
        _ => "check the server's log",
    }
}

/// A secure channel is asked for on a queue that makes none.
pub(super) fn secure_channel(portal: &HostPort) -> Error {
    Error::Authentication {
        portal: portal.clone(),
        reason: "the subsystem requires a secure channel made by DH-HMAC-CHAP (concatenation)"
            .to_owned(),
        advice: "this queue cannot make one, and a program without TLS none at all: check the server's settings",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: Status, result: u64) -> String {
        let portal = HostPort::parse("host", 4420).unwrap();
        let nqn = Nqn::new("nqn.2026-11.local:a").unwrap();
        let answer = Answer {
            status,
            result,
            sq_head: None,
            data: Vec::new(),
        };
        match check(&portal, &nqn, &answer) {
            Ok(demand) => format!("{demand:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let invalid = Status::CONNECT_INVALID_PARAMETERS.do_not_retry();
        let text = refused(invalid, 1 << 16 | 256);
        assert!(
            text.starts_with("host:4420: there is no subsystem nqn.2026-11.local:a"),
            "{text}"
        );
        assert!(refused(invalid, 44).contains("less depth"));
        assert!(refused(invalid, 9999).contains("log"));
        assert!(refused(Status::CONNECT_INVALID_HOST, 0).contains("host NQN"));
    }

    #[test]
    fn demands_are_told_from_success() {
        assert_eq!(refused(Status::SUCCESS, 7), "Nothing");
        assert_eq!(refused(Status::SUCCESS, 7 | 1 << 17), "Authentication");
        assert_eq!(refused(Status::SUCCESS, 7 | 0b11 << 17), "SecureChannel");
    }
}
