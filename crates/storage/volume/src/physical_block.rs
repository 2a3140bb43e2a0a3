//! The physical block of a volume: what its medium writes in one piece.

use crate::open::{OpenError, PHYSICAL_BLOCK_MAX, VolumeSpec};

/// The physical block of memory and of the page cache. Also the largest that a backend claims by itself:
/// Windows and ESXi refuse disks with larger ones, so only the operator may ask for them.
pub(crate) const PAGE: u32 = 4096;

/// The physical block of a volume: the one that was asked for, or the one that was `found`.
///
/// # Errors
/// The one asked for does not fit the logical block.
pub fn physical_block_size(
    spec: &VolumeSpec,
    block_size: u32,
    found: u32,
) -> Result<u32, OpenError> {
    match spec.physical_block_size {
        None if found.is_power_of_two() => Ok(found.min(PAGE).max(block_size)),
        None => Ok(PAGE),
        Some(asked) if is_valid(asked, block_size) => Ok(asked),
        Some(asked) => Err(OpenError::PhysicalBlockSize {
            name: spec.name.clone(),
            asked,
            block_size,
        }),
    }
}

fn is_valid(asked: u32, block_size: u32) -> bool {
    asked.is_power_of_two() && (block_size..=PHYSICAL_BLOCK_MAX).contains(&asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::BackendName;

    fn of(asked: Option<u32>, block_size: u32, found: u32) -> Option<u32> {
        let spec = VolumeSpec {
            physical_block_size: asked,
            ..VolumeSpec::new("v", BackendName::MEM)
        };
        physical_block_size(&spec, block_size, found).ok()
    }

    #[test]
    fn what_is_found_counts_between_a_block_and_a_page() {
        assert_eq!(of(None, 512, 512), Some(512));
        assert_eq!(of(None, 512, 4096), Some(4096));
        assert_eq!(of(None, 512, 1 << 20), Some(4096));
        assert_eq!(of(None, 4096, 512), Some(4096));
        assert_eq!(of(None, 512, 3000), Some(4096), "no power of two");
    }

    #[test]
    fn what_is_asked_for_is_a_power_of_two_from_the_block_to_64_kib() {
        assert_eq!(of(Some(512), 512, 4096), Some(512));
        assert_eq!(of(Some(16384), 512, 4096), Some(16384));
        assert_eq!(of(Some(65536), 4096, 4096), Some(65536));
        for (asked, block_size) in [(512, 4096), (3000, 512), (131_072, 512), (0, 512)] {
            assert_eq!(of(Some(asked), block_size, 4096), None, "{asked}");
        }
    }
}
