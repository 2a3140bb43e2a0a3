//! What lies on the drives of a pool.

use longshore_pool::format::PAGE;
use longshore_pool::format::checkpoint::{Item, PartHeader};
use longshore_pool::format::chunk::{pack, unpack};
use longshore_pool::format::op::Op;
use longshore_pool::format::record::{HEADER_MAX, RecordHeader};
use longshore_pool::format::segment::SegmentHeader;
use longshore_pool::format::superblock::Superblock;
use longshore_pool::place::Codec;

/// The first byte selects the structure. What is accepted comes back when it is written and read again.
pub(crate) fn pool_formats(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else {
        return;
    };
    match first % 7 {
        0 => {
            if let Ok(found) = Superblock::decode(bytes) {
                assert_eq!(Superblock::decode(&found.encode()), Ok(found));
            }
        }
        1 => {
            if let Ok(found) = SegmentHeader::decode(bytes) {
                assert_eq!(SegmentHeader::decode(&found.encode(512)), Ok(found));
            }
        }
        2 => record(bytes),
        3 => {
            if let Ok(found) = Op::decode(bytes) {
                assert_eq!(Op::decode(&found.encode()), Ok(found));
            }
        }
        4 => {
            if let Ok((header, content)) = PartHeader::open(bytes) {
                assert_eq!(usize::try_from(header.length), Ok(content.len()));
            }
        }
        5 => items(bytes),
        _ => chunk(bytes),
    }
}

/// The first byte selects the codec and the length. What is unpacked comes back when it is packed and unpacked again.
fn chunk(bytes: &[u8]) {
    let Some((first, packed)) = bytes.split_first() else {
        return;
    };
    let codec = if first & 1 == 0 {
        Codec::Lz4
    } else {
        Codec::Zstd
    };
    let mut plain = vec![0; (1 + usize::from(first >> 1 & 3)) * PAGE];
    if unpack(codec, packed, &mut plain).is_err() {
        return;
    }
    if let Some(packed) = pack(codec, &plain) {
        let mut again = vec![0; plain.len()];
        assert_eq!(unpack(codec, &packed, &mut again), Ok(()));
        assert_eq!(again, plain);
    }
}

fn record(bytes: &[u8]) {
    let Ok(found) = RecordHeader::decode(bytes) else {
        return;
    };
    for part in &*found.parts {
        let _ = part.is_intact(bytes);
    }
    let mut again = found.clone();
    let mut room = vec![0; HEADER_MAX];
    let start = again.encode_into(&mut room, 512);
    let decoded = RecordHeader::decode(&room[start..]);
    assert_eq!(decoded, Ok(again));
}

/// A stream of items ends, whatever it is made of.
fn items(bytes: &[u8]) {
    let mut stream = bytes;
    loop {
        let before = stream.len();
        match Item::decode(&mut stream) {
            Ok(Some(item)) => {
                assert!(stream.len() < before, "each item takes bytes");
                let mut encoded = Vec::new();
                item.encode(&mut encoded);
                let again = Item::decode(&mut &encoded[..]);
                assert_eq!(again, Ok(Some(item)));
            }
            Ok(None) | Err(_) => return,
        }
    }
}
