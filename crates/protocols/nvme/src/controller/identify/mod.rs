//! Identify (NVMe base 2.0 §5.17): what a controller and its namespaces are.
//!
//! - `controller`: Identify Controller; `namespace`: the data structures of a namespace;
//! - `lists`: lists of namespaces and controllers.
//!
//! A host is never told of namespaces it does not see.

mod controller;
mod lists;
mod namespace;

use super::admin_command::{AdminOutcome, DONE, Request};
use super::failure::Failure;
use super::state::Controller;
use crate::command::{NamespaceId, SubmissionEntry};

/// Bytes of every data structure of Identify.
pub(super) const IDENTIFY_LENGTH: u32 = 4096;

pub(super) const IDENTIFY_BYTES: usize = 4096;

/// A data structure in the making.
type Page = [u8; IDENTIFY_BYTES];

/// Controller or Namespace Structure (CNS).
mod cns {
    pub(super) const NAMESPACE: u8 = 0x00;
    pub(super) const CONTROLLER: u8 = 0x01;
    pub(super) const ACTIVE_NAMESPACES: u8 = 0x02;
    pub(super) const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    pub(super) const COMMAND_SET_NAMESPACE: u8 = 0x05;
    pub(super) const COMMAND_SET_CONTROLLER: u8 = 0x06;
    pub(super) const COMMAND_SET_ACTIVE_NAMESPACES: u8 = 0x07;
    pub(super) const INDEPENDENT_NAMESPACE: u8 = 0x08;
    pub(super) const ALLOCATED_NAMESPACES: u8 = 0x10;
    pub(super) const ALLOCATED_NAMESPACE: u8 = 0x11;
    pub(super) const NAMESPACE_CONTROLLERS: u8 = 0x12;
    pub(super) const CONTROLLERS: u8 = 0x13;
    pub(super) const COMMAND_SET_ALLOCATED_NAMESPACES: u8 = 0x1a;
    pub(super) const COMMAND_SET_ALLOCATED_NAMESPACE: u8 = 0x1b;
    pub(super) const COMMAND_SETS: u8 = 0x1c;
}

/// CSI of the NVM command set.
const NVM_COMMAND_SET: u8 = 0;

/// Bytes of the entry at which CNS, CNTID and CSI are.
const CNS_AT: u16 = 40;
const CONTROLLER_AT: u16 = 42;
const COMMAND_SET_AT: u16 = 47;

/// Fields of the command.
#[derive(Clone, Copy, Debug)]
struct Identify {
    cns: u8,
    /// CNTID: the first controller of a list, or the one that is asked about.
    controller: u16,
    namespace: NamespaceId,
    command_set: u8,
}

impl Identify {
    fn decode(entry: &SubmissionEntry) -> Self {
        let [cns, _, low, high] = entry.dword(10).to_le_bytes();
        let [.., command_set] = entry.dword(11).to_le_bytes();
        Self {
            cns,
            controller: u16::from_le_bytes([low, high]),
            namespace: entry.namespace(),
            command_set,
        }
    }

    /// For the command set we have.
    fn of_nvm(self) -> Result<Self, Failure> {
        if self.command_set == NVM_COMMAND_SET {
            Ok(self)
        } else {
            Err(Failure::field(COMMAND_SET_AT))
        }
    }
}

impl Controller {
    pub(super) fn identify(&self, request: &mut Request) -> Result<AdminOutcome, Failure> {
        let identify = Identify::decode(request.entry);
        let mut page: Page = [0; IDENTIFY_BYTES];
        self.identify_into(identify, &mut page)?;
        request.out.extend_from_slice(&page);
        Ok(DONE)
    }

    fn identify_into(&self, identify: Identify, page: &mut Page) -> Result<(), Failure> {
        if self.is_discovery() && identify.cns != cns::CONTROLLER {
            return Err(Failure::field(CNS_AT));
        }
        match identify.cns {
            cns::CONTROLLER => self.identify_controller(page),
            cns::NAMESPACE | cns::ALLOCATED_NAMESPACE => {
                self.identify_namespace(identify.namespace, page)?;
            }
            cns::ACTIVE_NAMESPACES | cns::ALLOCATED_NAMESPACES => {
                self.list_namespaces(identify.namespace, page)?;
            }
            cns::COMMAND_SET_ACTIVE_NAMESPACES | cns::COMMAND_SET_ALLOCATED_NAMESPACES => {
                self.list_namespaces(identify.of_nvm()?.namespace, page)?;
            }
            cns::NAMESPACE_DESCRIPTORS => self.describe_namespace(identify.namespace, page)?,
            cns::COMMAND_SET_NAMESPACE | cns::COMMAND_SET_ALLOCATED_NAMESPACE => {
                self.identify_nvm_namespace(identify.of_nvm()?.namespace)?;
            }
            // NVM command set: no limits beside MDTS, all 0.
            cns::COMMAND_SET_CONTROLLER => {
                identify.of_nvm()?;
            }
            cns::INDEPENDENT_NAMESPACE => {
                self.identify_independent(identify.namespace, page)?;
            }
            cns::NAMESPACE_CONTROLLERS => {
                self.list_controllers(identify.controller, Some(identify.namespace), page)?;
            }
            cns::CONTROLLERS => self.list_controllers(identify.controller, None, page)?,
            cns::COMMAND_SETS => self.list_command_sets(identify.controller, page)?,
            _ => return Err(Failure::field(CNS_AT)),
        }
        Ok(())
    }
}
