//! The remote server is one that nobody here wrote: Debian's `tgt`.

use longshore_tests::scratch::Scratch;
use longshore_tests::server::TARGET;
use longshore_tests::skip::skip;
use longshore_tests::tgt::{Tgt, TgtVolume};

use crate::rig::{BOTH, Client, Iscsi, over_url, pattern};

#[test]
fn a_volume_of_tgt_is_offered_over_both_protocols() {
    const SIZE: u64 = 16 << 20;
    let scratch = Scratch::new("re-export-tgt");
    let path = scratch.join("disk");
    std::fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
    let volume = TgtVolume {
        backing_store_type: "rdwr",
        path: path.clone(),
        block_size: 512,
    };
    let tgt = match Tgt::start(&[], 1, &[volume]) {
        Ok(tgt) => tgt,
        Err(error) => {
            skip(error.to_string());
            return;
        }
    };
    let url = format!("iscsi://{}/{TARGET}/1", tgt.portal(0));
    let a = over_url(Iscsi, &url, "").start().unwrap();
    for (generation, in_front) in (1..).zip(BOTH) {
        let client = Client::new(&a, in_front);
        assert_eq!(client.size(), SIZE);
        for (offset, length, fua) in [
            (0, 512, true),
            (4096, 64 << 10, false),
            (1 << 20, 4 << 20, true),
        ] {
            let bytes = pattern(offset, length, generation);
            client.write(offset, &bytes, fua).unwrap();
            assert!(
                client.read(offset, length).unwrap() == bytes,
                "{in_front:?} {offset}"
            );
        }
        client.flush().unwrap();
        let on_disk = std::fs::read(&path).unwrap();
        assert!(on_disk[4096..4096 + (64 << 10)] == pattern(4096, 64 << 10, generation));
        let zeroed = longshore_initiator::volume::block_on(client.0.write_zeroes(
            1 << 20,
            1 << 20,
            false,
            true,
        ));
        zeroed.unwrap();
        assert!(
            client
                .read(1 << 20, 1 << 20)
                .unwrap()
                .iter()
                .all(|byte| *byte == 0)
        );
    }
}
