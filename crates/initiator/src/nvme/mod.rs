//! Nvme.
