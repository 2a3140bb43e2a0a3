//! The iSCSI side of the initiator library against servers: ours, and Debian's `tgt` where it is
//! installed.

mod errors;
mod login;
mod operations;
mod rig;
mod sessions;
mod tgt;
mod transfers;
