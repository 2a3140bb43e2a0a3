//! Debian's `tgt`: 8 KiB segments, InitialR2T=Yes, a controller at LUN 0, no REPORT SUPPORTED OPERATION CODES
//! of every command.

use longshore_initiator::error::Error;
use longshore_initiator::iscsi::discover;
use longshore_initiator::operation::{Operation, Reply};
use longshore_initiator::options::{DigestWish, Options, QueueMaps};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::TARGET;
use longshore_tests::skip::skip;
use longshore_tests::tgt::{Tgt, TgtVolume};

use crate::rig::{Rig, extent, host_port, url};

fn start(scratch: &Scratch) -> Option<Tgt> {
    let path = scratch.join("disk.img");
    std::fs::File::create(&path)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let volume = TgtVolume {
        backing_store_type: "rdwr",
        path,
        block_size: 512,
    };
    match Tgt::start(&[], 1, &[volume]) {
        Ok(tgt) => Some(tgt),
        Err(error) => {
            skip(format!("tgt cannot be started: {error}"));
            None
        }
    }
}

#[test]
fn tgt_is_discovered_identified_and_verified() {
    let scratch = Scratch::new("remote-tgt");
    let Some(tgt) = start(&scratch) else { return };
    let targets = discover(&host_port(tgt.portal(0)), &Options::default()).unwrap();
    assert!(targets.iter().any(|target| target.name.as_str() == TARGET));
    // It has digests only when it is told to.
    let required = Options {
        data_digest: DigestWish::Require,
        ..Options::default()
    };
    let error = Rig::attach(&url(tgt.portal(0), 1), &required).err();
    let error = error.expect("there is no digest");
    assert!(matches!(error, Error::NotGranted { .. }), "{error:?}");
    for wish in [DigestWish::Off, DigestWish::Ask] {
        let options = Options {
            header_digest: wish,
            data_digest: wish,
            queues: QueueMaps::plain(2),
            ..Options::default()
        };
        let mut rig = Rig::attach(&url(tgt.portal(0), 1), &options).unwrap();
        let info = &rig.attachment.info;
        assert_eq!((info.block_size, info.block_count), (512, 131_072));
        assert_eq!(info.vendor, "IET");
        assert!(!info.identifiers.is_empty() && !info.serial.is_empty());
        rig.verify(&[512, 4096, 8192, 66_048, 262_144, 1_050_624]);
        assert_eq!(rig.order(Operation::Flush), Ok(Reply::Done));
        let description = rig.attachment.control.describe().unwrap();
        assert!(description.reservation.is_some());
        if rig.attachment.info.write_zeroes {
            let extent = extent(0, 16);
            let zeroes = Operation::WriteZeroes {
                extent,
                may_unmap: true,
                fua: false,
            };
            rig.order(zeroes).unwrap();
            assert_eq!(rig.read(0, 8192).unwrap(), [0; 8192]);
        }
        if rig.attachment.info.unmap {
            let extent = extent(0, 16);
            rig.order(Operation::Unmap { extent }).unwrap();
        }
        rig.close();
    }
}

#[test]
fn the_controller_of_tgt_is_no_disk_and_the_disks_are_named() {
    let scratch = Scratch::new("remote-tgt");
    let Some(tgt) = start(&scratch) else { return };
    let error = Rig::attach(&url(tgt.portal(0), 0), &Options::default()).err();
    let error = error.expect("it is no disk");
    assert!(matches!(error, Error::Unusable { .. }), "{error:?}");
    assert!(error.to_string().contains("try LUN 1"), "{error}");
    let error = Rig::attach(&url(tgt.portal(0), 7), &Options::default()).err();
    let error = error.expect("it is not there");
    assert!(matches!(error, Error::NotFound { .. }), "{error:?}");
}
