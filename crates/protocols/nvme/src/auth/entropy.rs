//! Random bytes, which machines do not make themselves.

/// Fills memory with random bytes that nobody can foresee.
pub type Entropy<'a> = &'a mut dyn FnMut(&mut [u8]);
