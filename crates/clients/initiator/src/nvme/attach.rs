//! Attaching a namespace over one portal: admin queue, questions, I/O queues.

use longshore_nvme::command::NamespaceId;

use super::admin::Admin;
use super::control::Control;
use super::describe::Facts;
use super::discovery::subsystems_near;
use super::machine::{Machine, NamespaceLimits};
use super::plan::Plan;
use crate::attachment::{self, Attachment};
use crate::error::Error;
use crate::options::Options;
use crate::queue::{AnyQueue, Queue};
use crate::url::{HostPort, NvmeUrl};

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
        let (channel, connection, transmit) = link.into_parts();
        let machine = Machine::new(connection, plan.entries - 1, limits.clone());
        let queue = Queue::start(channel, machine, transmit, &[], &options.paths);
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
        control: attachment::Control::NvmeTcp(control),
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
