//! Attaching a namespace over one portal: admin queue, questions, I/O queues.

use longshore_nvme::command::NamespaceId;

use super::admin::Admin;
use super::control::Control;
use super::describe::Facts;
use super::discovery::subsystems_near;
use super::machine::{Machine, NamespaceLimits};
use crate::attach::{self, Attachment};
use crate::error::Error;
use crate::options::{Options, QueueMaps};
use crate::queue::{AnyQueue, Queue};
use crate::url::{HostPort, NvmeUrl};

/// Fewest entries of an I/O queue, if the controller takes so many: a fused pair fits in.
const ENTRIES_MIN: u32 = 3;

/// Attaches the namespace over the portal with this number in its URL. Blocks, within the time-outs.
///
/// # Errors
/// Says where, why, and what to do next.
///
/// # Panics
/// When there is no such portal.
pub fn attach_path(url: &NvmeUrl, portal: usize, options: &Options) -> Result<Attachment, Error> {
    let portal = &url.portals[portal];
    let mut admin = connect(url, portal, options)?;
    let controller = admin.identify_controller()?;
    if controller.is_discovery {
        return Err(Error::Unusable {
            portal: portal.clone(),
            reason: format!(
                "{} is a discovery controller, it has no namespaces",
                url.subsystem
            ),
        });
    }
    let facts = Facts::ask(&mut admin, controller, NamespaceId(url.namespace))?;
    let plan = Plan::new(&mut admin, &facts, options)?;
    let info = facts.volume_info();
    let limits = NamespaceLimits::new(facts.id, &info, facts.controller.disconnect, admin.delays());
    let mut queues = Vec::with_capacity(plan.maps.total());
    let mut io = None;
    for queue_id in (1..).take(plan.maps.total()) {
        let (link, settled) = plan.connect(&mut admin, queue_id)?;
        io.get_or_insert(settled);
        let (stream, connection, transmit) = link.into_parts();
        let machine = Machine::new(connection, plan.entries - 1, limits.clone());
        let queue = Queue::start(stream.into(), machine, transmit, &[], &options.paths);
        queues.push(AnyQueue::NvmeTcp(queue.map_err(|source| {
            Error::System {
                what: "set the options of a socket",
                source: source.into(),
            }
        })?));
    }
    let address = admin.address();
    let io = io.expect("there is at least one queue");
    let control = Control::start(admin, facts, &plan, io)?;
    Ok(Attachment {
        info,
        negotiated: control.negotiated(),
        portal: address,
        queues,
        maps: plan.maps,
        control: attach::Control::NvmeTcp(control),
    })
}

/// The admin queue; of a subsystem that is not there, the error names those that are.
fn connect(url: &NvmeUrl, portal: &HostPort, options: &Options) -> Result<Admin, Error> {
    let keep_alive = options.nvme.keep_alive;
    match Admin::connect(portal, &url.subsystem, keep_alive, options) {
        Err(Error::NotFound { portal, wanted, .. }) => {
            let available = subsystems_near(&portal, options);
            Err(Error::NotFound {
                portal,
                wanted,
                available,
            })
        }
        other => other,
    }
}

/// What was settled for I/O queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct IoSettings {
    pub(super) header_digest: bool,
    pub(super) data_digest: bool,
    pub(super) max_h2c_data: u32,
    pub(super) flow_control: bool,
}

/// How many I/O queues there will be, and how large.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) maps: QueueMaps,
    pub(super) wanted: QueueMaps,
    /// I/O queues that the controller grants.
    pub(super) granted: u16,
    pub(super) entries: u16,
    pub(super) in_capsule_data_bytes: u32,
}

impl Plan {
    fn new(admin: &mut Admin, facts: &Facts, options: &Options) -> Result<Self, Error> {
        let wanted = u16::try_from(options.queues.total())
            .map_err(|_| Error::Options("a controller has at most 65,535 I/O queues".to_owned()))?;
        // One more than needed, for questions that only I/O queues answer.
        let granted = admin.ask_for_queues(wanted.max(1).saturating_add(1))?;
        let most = admin.capabilities().queue_entries();
        let most = match facts.controller.max_commands {
            0 => most,
            commands => most.min(commands.into()),
        };
        let entries = u32::from(options.depth)
            .saturating_add(1)
            .max(ENTRIES_MIN)
            .min(most.clamp(2, 1 << 15));
        Ok(Self {
            maps: options.queues.within(granted),
            wanted: options.queues,
            granted,
            entries: u16::try_from(entries).expect("at most 32,768"),
            in_capsule_data_bytes: facts.controller.in_capsule_data_bytes(),
        })
    }

    /// Connects the I/O queue with this number.
    pub(super) fn connect(
        &self,
        admin: &mut Admin,
        queue_id: u16,
    ) -> Result<(super::link::Link, IoSettings), Error> {
        let in_capsule = self.in_capsule_data_bytes;
        let (link, flow_control) = admin.connect_queue(queue_id, self.entries, in_capsule)?;
        let connection = link.connection();
        let settled = IoSettings {
            header_digest: connection.digests().header,
            data_digest: connection.digests().data,
            max_h2c_data: connection.max_h2c_data(),
            flow_control,
        };
        Ok((link, settled))
    }

    /// The number of an I/O queue that the controller grants and nobody uses.
    pub(super) fn spare_queue(&self) -> Option<u16> {
        let used = u16::try_from(self.maps.total()).ok()?;
        (used < self.granted).then_some(used + 1)
    }
}
