//! NVMe/TCP: discovery, controllers and their queues, namespaces (NVMe base 2.0, NVM command set 1.0, NVMe/TCP
//! transport 1.0).
//!
//! ```text
//!                      attach_path()
//!   admin queue ─► Control   keep-alive, asynchronous events, questions
//!   I/O queues  ─► Machine   behind a queue::Queue each, in the order of the queue maps
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `link.rs` | a connection with time limits, for what is not a data path |
//! | `admin.rs`, `refusal.rs` | the admin queue, and why Connect was refused |
//! | `authentication.rs` | DH-HMAC-CHAP on a queue that is connected |
//! | `identify.rs`, `log_page.rs`, `reservation_report.rs`, `page.rs` | what controllers tell about themselves |
//! | `identity.rs` | who the host says it is |
//! | `discovery.rs` | the discovery log page, and referrals |
//! | `attach.rs`, `describe.rs` | from a URL to queues, and what there is to know of a namespace |
//! | `control.rs` | the admin queue of a namespace that is attached |
//! | `machine.rs`, `failure.rs` | operations as commands, statuses as failures |
//!
//! Not supported: TLS, metadata and protection information, other command sets than
//! NVM.

mod admin;
mod attach;
mod authentication;
mod control;
mod describe;
mod discovery;
mod failure;
mod identify;
mod identity;
mod link;
mod log_page;
mod machine;
mod page;
mod plan;
mod refusal;
mod reservation_report;
mod secure;

pub use admin::{Admin, Capabilities};
pub use attach::attach_path;
pub use control::Control;
pub use discovery::{DiscoveryEntry, EntryKind, discover, discover_host};
pub use identify::{
    CommandLimits, DeallocatedBlocks, IdentifyController, IdentifyNamespace, NamespaceDescriptors,
    OptionalCommands, namespace_list,
};
pub use identity::HostIdentity;
pub(crate) use link::greet;
pub use log_page::{Health, ana_state};
pub use machine::Machine;
