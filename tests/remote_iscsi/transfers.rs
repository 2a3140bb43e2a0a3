//! Every combination of what is negotiated about data, with verify.

use longshore_initiator::options::{DigestWish, Options, ReceivePath, SendPath};

use crate::rig::{Rig, server, url, with_config};

/// Below, at and above every limit.
const LENGTHS: [usize; 9] = [
    512, 1024, 4096, 8192, 8704, 65_536, 66_048, 262_144, 1_050_624,
];

#[test]
fn what_was_written_is_read_back_with_every_combination_of_digests() {
    let server = server();
    let wishes = [DigestWish::Off, DigestWish::Ask, DigestWish::Require];
    for header_digest in wishes {
        for data_digest in wishes {
            let options = Options {
                header_digest,
                data_digest,
                ..Options::default()
            };
            let mut rig = Rig::attach(&url(server.portal(0), 0), &options).unwrap();
            for (key, wish) in [("HeaderDigest", header_digest), ("DataDigest", data_digest)] {
                let expected = if wish.is_asked_for() {
                    "CRC32C"
                } else {
                    "None"
                };
                assert_eq!(rig.negotiated(key), expected);
            }
            rig.verify(&LENGTHS);
            rig.close();
        }
    }
}

#[test]
fn the_url_turns_digests_on_and_off() {
    let server = server();
    let plain = url(server.portal(0), 0);
    let asked: longshore_initiator::url::Url =
        format!("{plain}?header_digest=crc32c&data_digest=none")
            .parse()
            .unwrap();
    let options = Options {
        data_digest: DigestWish::Ask,
        ..Options::default()
    };
    let rig = Rig::attach(&asked, &options).unwrap();
    assert_eq!(rig.negotiated("HeaderDigest"), "CRC32C");
    assert_eq!(rig.negotiated("DataDigest"), "None");
}

#[test]
fn what_was_written_is_read_back_with_every_setting_of_r2t_bursts_and_segments() {
    let server = server();
    for initial_r2t in [true, false] {
        for immediate_data in [true, false] {
            for (segment, first_burst, max_burst, outstanding) in [
                (512, 512, 512, 1),
                (1024, 512, 4096, 3),
                (8192, 65_536, 262_144, 1),
                (65_536, 8192, 16_776_192, 8),
                (16_777_215, 16_777_215, 16_777_215, 65_535),
            ] {
                let mut options = Options::default();
                let offers = &mut options.iscsi.preferences;
                offers.initial_r2t = initial_r2t;
                offers.immediate_data = immediate_data;
                offers.max_recv_data_segment_length = segment;
                offers.first_burst_length = first_burst;
                offers.max_burst_length = max_burst;
                offers.max_outstanding_r2t = outstanding;
                let mut rig = Rig::attach(&url(server.portal(0), 0), &options).unwrap();
                let yes_no = |value| if value { "Yes" } else { "No" };
                assert_eq!(rig.negotiated("InitialR2T"), yes_no(initial_r2t));
                assert_eq!(rig.negotiated("ImmediateData"), yes_no(immediate_data));
                rig.verify(&LENGTHS);
                rig.close();
            }
        }
    }
}

#[test]
fn a_target_with_small_limits_gets_data_in_pieces_of_its_size() {
    let server = with_config(
        "[iscsi]\nmax-recv-data-segment-length = 512\nmax-burst-length = 1536\n\
         first-burst-length = 1024\nmax-outstanding-r2t = 2\n",
    );
    for wish in [DigestWish::Off, DigestWish::Require] {
        let options = Options {
            header_digest: wish,
            data_digest: wish,
            ..Options::default()
        };
        let mut rig = Rig::attach(&url(server.portal(0), 0), &options).unwrap();
        assert_eq!(rig.negotiated("MaxBurstLength"), "1536");
        assert_eq!(rig.negotiated("MaxRecvDataSegmentLength (target)"), "512");
        rig.verify(&LENGTHS);
    }
}

#[test]
fn every_way_to_move_bytes_moves_the_same() {
    let server = server();
    for send in [SendPath::Copy, SendPath::Gather, SendPath::ZeroCopy] {
        for receive in [ReceivePath::Buffered, ReceivePath::Direct] {
            for digest in [DigestWish::Off, DigestWish::Require] {
                let mut options = Options {
                    header_digest: digest,
                    data_digest: digest,
                    ..Options::default()
                };
                options.paths.send = send;
                options.paths.receive = receive;
                options.paths.zerocopy_threshold = 4096;
                let mut rig = Rig::attach(&url(server.portal(0), 0), &options).unwrap();
                rig.verify(&LENGTHS);
            }
        }
    }
}
