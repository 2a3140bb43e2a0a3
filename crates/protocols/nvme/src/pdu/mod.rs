//! Protocol data units of NVMe/TCP: what both roles write and read.
//!
//! ```text
//! ├─ header, HLEN bytes ──────────┬───────┬─────────┬──────────┬───────┤
//! │ common header (8), own fields │ HDGST │ padding │   data   │ DDGST │
//! ├───────────────────────────────┴───────┴─────────┴──────────┴───────┤
//! 0                                                 PDO               PLEN
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `fatal_error.rs` | FES and FEI: why a connection ends |
//! | `header.rs` | PDU types, flags, the common header and where its data lies |
//! | `initialize.rs` | ICReq, ICResp |
//! | `terminate.rs` | H2CTermReq, C2HTermReq |
//! | `capsule.rs` | CapsuleCmd, CapsuleResp |
//! | `data.rs` | H2CData, C2HData, R2T |
//! | `framing.rs` | cuts the stream into headers and data, checks digests |
//! | `encoder.rs` | puts PDUs into the transmit queue |
//!
//! A type's `encode` gives its header without digests and data: PLEN is HLEN and PDO is 0 until
//! the encoder knows more. `decode` reads the type's own fields; the framing has checked
//! the common header then. Fields are little-endian; reserved ones are written as zeros and not looked at.

mod capsule;
mod data;
pub(crate) mod encoder;
mod fatal_error;
pub(crate) mod framing;
mod header;
mod initialize;
mod terminate;
#[cfg(test)]
mod tests;

pub use capsule::{CapsuleCmd, CapsuleResp};
pub use data::{C2hData, H2cData, R2t, TransferTag};
pub use fatal_error::{FatalError, FatalErrorStatus};
pub use header::{CommonHeader, Flags, PduType};
pub use initialize::{Digests, IcReq, IcResp};
pub use terminate::{TermReq, Terminator};
