//! How much data admin and Fabrics commands take or return.

use super::connect::CONNECT_DATA_LENGTH;
use super::features::FeatureId;
use super::identify::IDENTIFY_LENGTH;
use super::log_page::LogPageRequest;
use crate::auth::{AuthenticationCommand, RECEIVE_LENGTH, SEND_LENGTH_MAX};
use crate::command::SubmissionEntry;
use crate::opcode::{self, Direction, admin, fabrics};

/// What an admin command takes from the host, or gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminTransfer {
    pub direction: Direction,
    /// Bytes. What goes to the controller must be there before [`Controller::admin`] is called; a
    /// shorter SGL makes the command fail.
    ///
    /// [`Controller::admin`]: super::Controller::admin
    pub length: u32,
}

impl AdminTransfer {
    const NONE: Self = Self {
        direction: Direction::None,
        length: 0,
    };

    const fn to_controller(length: u32) -> Self {
        Self {
            direction: Direction::ToController,
            length,
        }
    }

    const fn to_host(length: u32) -> Self {
        Self {
            direction: Direction::ToHost,
            length,
        }
    }

    /// Of a command of the admin queue, or a Fabrics command of any.
    #[must_use]
    pub fn of(entry: &SubmissionEntry) -> Self {
        match entry.opcode() {
            opcode::FABRICS if entry.fabrics_type() == fabrics::CONNECT => {
                Self::to_controller(CONNECT_DATA_LENGTH)
            }
            opcode::FABRICS if entry.fabrics_type() == fabrics::AUTHENTICATION_SEND => {
                match AuthenticationCommand::decode(entry) {
                    Ok(command) if command.length <= SEND_LENGTH_MAX => {
                        Self::to_controller(command.length)
                    }
                    // It fails.
                    Ok(_) | Err(_) => Self::NONE,
                }
            }
            opcode::FABRICS if entry.fabrics_type() == fabrics::AUTHENTICATION_RECEIVE => {
                match AuthenticationCommand::decode(entry) {
                    Ok(command) => Self::to_host(command.length.min(RECEIVE_LENGTH)),
                    Err(_) => Self::NONE,
                }
            }
            admin::IDENTIFY => Self::to_host(IDENTIFY_LENGTH),
            admin::GET_LOG_PAGE => {
                // What does not fit 32 bits is refused for its length.
                let length = LogPageRequest::decode(entry).length;
                Self::to_host(u32::try_from(length).unwrap_or(u32::MAX))
            }
            admin::SET_FEATURES => match FeatureId::of(entry).data_length() {
                0 => Self::NONE,
                length => Self::to_controller(length),
            },
            admin::GET_FEATURES => match FeatureId::of(entry).data_to_host(entry) {
                0 => Self::NONE,
                length => Self::to_host(length),
            },
            _ => Self::NONE,
        }
    }
}
