//! Virtual machines with a real Linux kernel, to meet its initiator and to cut its power.
//!
//! QEMU runs without KVM, so a machine of any kind will do; a guest is up in about four seconds.
//! The guest has no disk and no distribution: an image is put together from Debian's cloud kernel
//! (as a file; nothing is installed), busybox and programs of the host with their libraries. A job
//! is a shell script that talks with the host over the second serial line.

pub mod cpio;
pub mod debian;
pub mod disk;
pub mod guest;
pub mod image;
pub mod kernel;
pub mod modules;
pub mod relay;
pub mod strip;
pub mod system;
