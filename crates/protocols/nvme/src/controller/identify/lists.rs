//! Lists of namespaces, controllers and command sets.

use super::{CONTROLLER_AT, Page};
use crate::command::NamespaceId;
use crate::controller::Controller;
use crate::controller::failure::Failure;
use crate::io::limits::NAMESPACES_MAX;

/// Controllers in a list: the first two bytes say how many follow.
const CONTROLLERS_MAX: usize = 2047;
/// CNTID of the controller that is asked.
const THIS_CONTROLLER: u16 = 0xffff;

impl Controller {
    /// Namespaces with identifiers above NSID, in order. As many as fit; those of us that are attached
    /// and those that exist are the same.
    pub(super) fn list_namespaces(
        &self,
        after: NamespaceId,
        page: &mut Page,
    ) -> Result<(), Failure> {
        // Nothing can follow these two (§5.17.2.2).
        if after.0 >= u32::MAX - 1 {
            return Err(Failure::INVALID_NAMESPACE);
        }
        let namespaces = self.namespaces();
        let ids = namespaces.iter().map(|ns| ns.id);
        let wanted = ids.filter(|id| *id > after);
        for (place, id) in page.as_chunks_mut::<4>().0.iter_mut().zip(wanted) {
            *place = id.0.to_le_bytes();
        }
        Ok(())
    }

    /// Controllers from CNTID on: of the subsystem, or to which a namespace is attached.
    pub(super) fn list_controllers(
        &self,
        from: u16,
        namespace: Option<NamespaceId>,
        page: &mut Page,
    ) -> Result<(), Failure> {
        if namespace.is_some_and(|id| !(1..=NAMESPACES_MAX).contains(&id.0)) {
            return Err(Failure::INVALID_NAMESPACE);
        }
        // What a host does not see has no controllers for it.
        let seen = namespace.is_none_or(|id| self.attached(id).is_some());
        let others = if seen {
            self.registry.controllers()
        } else {
            Vec::new()
        };
        let ids = others
            .iter()
            .filter(|other| other.id() >= from)
            .filter(|other| namespace.is_none_or(|id| other.attached(id).is_some()))
            .map(|other| other.id())
            .take(CONTROLLERS_MAX);
        let (count, places) = page.split_at_mut(2);
        let mut listed: u16 = 0;
        for (place, id) in places.as_chunks_mut::<2>().0.iter_mut().zip(ids) {
            *place = id.to_le_bytes();
            listed += 1;
        }
        count.copy_from_slice(&listed.to_le_bytes());
        Ok(())
    }

    /// Combinations of command sets that a controller can have at once: NVM alone.
    pub(super) fn list_command_sets(
        &self,
        controller: u16,
        page: &mut Page,
    ) -> Result<(), Failure> {
        const NVM: u8 = 1 << 0;
        let known = controller == THIS_CONTROLLER
            || controller == self.id()
            || self.registry.controller(controller).is_some();
        if !known {
            return Err(Failure::field(CONTROLLER_AT));
        }
        page[0] = NVM;
        Ok(())
    }
}
