//! How many volumes a map has room for.

/// The most volumes of a map: flat space addressing of logical units has 14 bits (SAM-5 §4.7.7.4), and a
/// subsystem has as many namespaces.
pub(super) const VOLUMES_MAX: u16 = 1 << 14;

/// The largest namespace identifier.
pub const NSID_MAX: u32 = VOLUMES_MAX as u32;
