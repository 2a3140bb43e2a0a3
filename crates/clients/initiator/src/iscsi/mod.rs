//! iSCSI: discovery, sessions, logical units (RFC 7143; SAM-5, SPC-4, SBC-3 and parts of SBC-4).
//!
//! ```text
//!                 attach_path()
//!   Session ─► identify ─► Machine   behind a queue::Queue each: one session a queue
//!                     └──► Control   questions, over a session of its own
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `login.rs` | from a portal to a session: redirections, refusals and what to do about them |
//! | `identity.rs` | who the initiator says it is: its name, and the ISIDs of its sessions |
//! | `session.rs` | a session with time limits, for what is not a data path |
//! | `discovery.rs` | SendTargets |
//! | `cdb.rs`, `outcome.rs` | commands, and what their ends mean |
//! | `pages.rs`, `identify.rs` | what logical units tell about themselves |
//! | `reservation.rs` | who has reserved a logical unit |
//! | `attach.rs`, `control.rs` | from a URL to queues, and what there is to know of a unit |
//! | `machine.rs` | operations as commands |
//!
//! Sessions have one connection each and error recovery level 0; several sessions make several queues.
//! A session keeps its ISID when it is established again, so that the target ends the tasks of the old one before the
//! new one begins (session reinstatement, RFC 7143 §6.3.5).

mod attach;
mod cdb;
mod control;
mod discovery;
mod identify;
mod identity;
mod login;
mod machine;
mod outcome;
mod pages;
mod reservation;
mod session;
mod target_login;

pub use attach::attach_path;
pub use control::Control;
pub(crate) use discovery::greet;
pub use discovery::{DiscoveredPortal, DiscoveredTarget, discover};
pub use identity::{fresh_isid, initiator_name};
pub use machine::{Dialect, Machine};
pub use session::{Answer, Session, Tag, Transfer};
