//! Hosts and initiators that prove who they are: DH-HMAC-CHAP and CHAP against the real server, what it keeps secret, and
//! what it does with those that only try.

mod chap;
mod confidential;
mod dhchap;
mod rig;
