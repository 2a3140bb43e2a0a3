//! What the tests of a whole server share: starting servers, looking at their processes, and an
//! initiator written apart from `longshore-iscsi`.
//!
//! The initiator here builds its PDUs from byte offsets in RFC 7143 §11 and shares no code with
//! the product, so that a mistake in the product's codec cannot cancel itself out, and so that a
//! test can send whatever a rude peer would. The NVMe host ([`nvme`]) is built around the product's own
//! machine, with PDUs by hand beside it.
#![forbid(unsafe_code)]

pub mod api;
pub mod initiator;
pub mod ledger;
pub mod noise;
pub mod nvme;
pub mod pdu;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod random;
pub mod relay;
pub mod report;
pub mod scratch;
pub mod server;
pub mod skip;
pub mod stop;
pub mod tgt;

/// How long an answer, a start or an end may take before a test fails: on a machine that is busy with other tests.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);
