//! Where the leaves of the next checkpoint go on.

use crate::place::Place;

/// Where the next leaf goes: the place, and the bytes that are left in its segment.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    pub segment: u32,
    pub place: Place,
    pub left: usize,
}
