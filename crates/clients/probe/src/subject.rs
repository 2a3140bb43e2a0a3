//! What is probed, and who made it, as far as names tell.

use std::collections::BTreeMap;

use longshore_bench::bound::Bound;
use longshore_initiator::info::Protocol;
use longshore_model::probe::{Make, Subject};

use crate::convert::{plain, text, way};

/// Negotiated values at most; there are some twenty.
const NEGOTIATED_MAX: usize = 256;

pub(crate) fn of(bound: &Bound) -> Subject {
    let place = &bound.place;
    let product = bound.info().map(|info| {
        // NVMe has no name of a vendor.
        let vendor = match info.protocol {
            Protocol::Iscsi => info.vendor.trim(),
            Protocol::NvmeTcp => "",
        };
        let words = [vendor, info.product.trim(), info.revision.trim()];
        text(words.join(" ").trim())
    });
    Subject {
        name: text(&place.url),
        way: way(place.protocol),
        portal: place.portal.clone(),
        volume_bytes: place.volume_bytes,
        block_size: place.block_size.into(),
        make: product.as_deref().map_or(Make::Unknown, make),
        product: product.filter(|product| !product.is_empty()),
    }
}

/// Parameters of the connection, without units.
pub(crate) fn negotiated(bound: &Bound) -> BTreeMap<String, String> {
    let all = bound.place.negotiated.iter().take(NEGOTIATED_MAX);
    all.map(|(name, value)| (text(name), plain(value)))
        .collect()
}

/// Whose server says that of itself.
fn make(product: &str) -> Make {
    let begins = [
        ("LONGSHOR", Make::Longshore),
        ("Longshore", Make::Longshore),
        ("LIO-ORG", Make::Lio),
        ("IET ", Make::Tgt),
        ("SCST_", Make::Scst),
        ("SPDK", Make::Spdk),
        // The iSCSI target of SPDK borrows the name.
        ("INTEL Malloc", Make::Spdk),
        ("Linux", Make::Nvmet),
    ];
    let known = begins
        .into_iter()
        .find(|(name, _)| product.starts_with(name));
    known.map_or(Make::Unknown, |(_, make)| make)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_what_they_call_themselves() {
        for (product, expected) in [
            ("LONGSHOR disk0 0.1", Make::Longshore),
            ("Longshore 0.1", Make::Longshore),
            ("IET VIRTUAL-DISK 0001", Make::Tgt),
            ("LIO-ORG FILEIO 4.0", Make::Lio),
            ("SCST_FIO disk1 350", Make::Scst),
            ("SPDK bdev Controller 26.05", Make::Spdk),
            ("Linux 6.1.0", Make::Nvmet),
            ("ACME Longshoreman", Make::Unknown),
            ("", Make::Unknown),
        ] {
            assert_eq!(make(product), expected, "{product}");
        }
    }
}
