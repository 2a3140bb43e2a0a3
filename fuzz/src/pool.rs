//! What lies on the drives of a pool.

use longshore_pool::format::checkpoint::{Item, PartHeader};
use longshore_pool::format::op::Op;
use longshore_pool::format::record::{HEADER_MAX, RecordHeader};
use longshore_pool::format::segment::SegmentHeader;
use longshore_pool::format::superblock::Superblock;

/// The first byte selects the structure. What is accepted comes back when it is written and read again.
pub(crate) fn pool_formats(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else {
        return;
    };
    match first % 6 {
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
        _ => items(bytes),
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
