//! Attaching: queues, sizes, digests, and what is told of the volume.

use longshore_initiator::attach;
use longshore_initiator::options::{DigestWish, Options, QueueMaps};
use longshore_tests::nvme::SUBSYSTEM;

use crate::{attach_error, attach_with, negotiated, pattern, read, serve, url_of, volumes, write};

#[test]
fn a_namespace_tells_what_it_is() {
    let server = serve();
    let attachment = attach_with(&server, &Options::default());
    let info = &attachment.info;
    assert_eq!((info.block_size, info.block_count), (512, 128 << 10));
    assert_eq!(info.size_bytes(), 64 << 20);
    assert!(!info.read_only && info.fua && info.unmap && info.write_zeroes);
    assert!(info.unmapped_reads_zeros);
    assert_eq!(info.compare_and_write_max, Some(128));
    assert!(!info.serial.is_empty() && !info.product.is_empty());
    let kinds: Vec<_> = info.identifiers.iter().map(|id| id.kind.as_str()).collect();
    assert_eq!(kinds, ["uuid", "nguid"]);
    assert_eq!(attachment.portal, server.nvme(0));
    assert_eq!(negotiated(&attachment, "SUBNQN"), SUBSYSTEM);
    assert_eq!(negotiated(&attachment, "VS"), "2.0.0");
    let other = attach::attach(&url_of(&server, 2), &Options::default()).unwrap();
    assert_eq!(other.info.block_size, 4096);
    assert!(!other.info.is_same_volume(info));
    let again = attach_with(&server, &Options::default());
    assert!(again.info.is_same_volume(info));
}

#[test]
fn every_combination_of_digests_carries_data() {
    let server = serve();
    let wishes = [DigestWish::Off, DigestWish::Require];
    for (header_digest, data_digest) in wishes
        .into_iter()
        .flat_map(|header| wishes.map(|data| (header, data)))
    {
        let options = Options {
            header_digest,
            data_digest,
            ..Options::default()
        };
        let mut attachment = attach_with(&server, &options);
        let text = |wish| {
            if wish == DigestWish::Off {
                "none"
            } else {
                "CRC32C"
            }
        };
        assert_eq!(negotiated(&attachment, "HDGST"), text(header_digest));
        assert_eq!(negotiated(&attachment, "DDGST"), text(data_digest));
        let queue = &mut attachment.queues[0];
        // In the capsule, by R2T, and with several H2CData.
        for length in [512, 8192, 8704, 1 << 20] {
            let data = pattern(length, length);
            write(queue, 64, &data);
            assert!(read(queue, 64, length) == data, "{length} bytes");
        }
    }
}

#[test]
fn data_for_the_host_is_aligned_as_it_asks() {
    let server = serve();
    let mut options = Options {
        header_digest: DigestWish::Ask,
        data_digest: DigestWish::Ask,
        ..Options::default()
    };
    options.nvme.hpda = 31;
    let mut attachment = attach_with(&server, &options);
    assert_eq!(negotiated(&attachment, "HPDA"), "128 bytes");
    let data = pattern(64 << 10, 5);
    write(&mut attachment.queues[0], 0, &data);
    assert_eq!(read(&mut attachment.queues[0], 0, 64 << 10), data);
}

#[test]
fn queue_maps_give_default_read_and_poll_queues() {
    let server = serve();
    let options = Options {
        queues: QueueMaps {
            default: 2,
            read: 3,
            poll: 1,
        },
        ..Options::default()
    };
    let mut attachment = attach_with(&server, &options);
    assert_eq!(attachment.maps, options.queues);
    assert_eq!(attachment.queues.len(), 6);
    let data = pattern(4096, 9);
    write(&mut attachment.queues[0], 8, &data);
    for queue in &mut attachment.queues {
        assert_eq!(read(queue, 8, 4096), data);
    }
}

#[test]
fn fewer_queues_than_asked_for_are_told_and_used() {
    let limits = "[limits]\nio-queues = 3\n";
    let server = volumes().nvme().config(limits).start().unwrap();
    let asked = QueueMaps {
        default: 2,
        read: 2,
        poll: 2,
    };
    let options = Options {
        queues: asked,
        ..Options::default()
    };
    let mut attachment = attach_with(&server, &options);
    let granted = QueueMaps {
        default: 2,
        read: 1,
        poll: 0,
    };
    assert_eq!(attachment.maps, granted);
    assert_eq!(attachment.queues.len(), 3);
    let told = negotiated(&attachment, "I/O queues asked for");
    assert_eq!(told, "2 default, 2 read, 2 poll");
    let data = pattern(512, 3);
    write(&mut attachment.queues[1], 0, &data);
    assert_eq!(read(&mut attachment.queues[2], 0, 512), data);
    // None is left to ask for reservations with.
    let description = attachment.control.describe().unwrap();
    assert_eq!(description.reservation, None);
}

#[test]
fn depth_is_a_queue_s_size_within_what_the_controller_takes() {
    let server = serve();
    for (depth, entries) in [(1, "3 entries"), (16, "17 entries"), (5000, "1024 entries")] {
        let options = Options {
            depth,
            ..Options::default()
        };
        let mut attachment = attach_with(&server, &options);
        assert_eq!(negotiated(&attachment, "SQSIZE"), entries);
        assert_eq!(read(&mut attachment.queues[0], 0, 512).len(), 512);
    }
}

#[test]
fn queues_work_with_and_without_flow_control() {
    let server = serve();
    for (flow_control, text) in [(true, "on"), (false, "off")] {
        let mut options = Options::default();
        options.nvme.flow_control = flow_control;
        let mut attachment = attach_with(&server, &options);
        assert_eq!(negotiated(&attachment, "SQ flow control"), text);
        let data = pattern(4096, usize::from(flow_control));
        for round in 0..300 {
            write(&mut attachment.queues[0], round * 8, &data);
            assert_eq!(read(&mut attachment.queues[0], round * 8, 4096), data);
        }
    }
}

#[test]
fn a_subsystem_that_is_not_there_is_answered_by_those_that_are() {
    let server = serve();
    let url = format!("nvme+tcp://{}/nqn.2026-11.local:other/1", server.nvme(0));
    let error = attach_error(&url.parse().unwrap(), &Options::default());
    let text = error.to_string();
    assert!(
        text.contains("there is no subsystem nqn.2026-11.local:other"),
        "{text}"
    );
    assert!(text.contains(&format!("use one of {SUBSYSTEM}")), "{text}");
}

#[test]
fn a_namespace_that_is_not_there_is_answered_by_those_that_are() {
    let server = serve();
    for namespace in [3, 1024, 5000] {
        let text = attach_error(&url_of(&server, namespace), &Options::default()).to_string();
        assert!(
            text.contains(&format!("there is no namespace {namespace}")),
            "{text}"
        );
        assert!(
            text.contains("use one of namespace 1, namespace 2"),
            "{text}"
        );
    }
}

#[test]
fn where_nobody_listens_the_error_says_so() {
    let portal = longshore_tests::server::free_port();
    let url = format!("nvme+tcp://{portal}/{SUBSYSTEM}/1");
    let text = attach_error(&url.parse().unwrap(), &Options::default()).to_string();
    assert!(text.contains(&portal.to_string()), "{text}");
    assert!(text.contains("check that the server runs"), "{text}");
}

#[test]
fn a_discovery_controller_is_no_volume() {
    let server = serve();
    let discovery = "nqn.2014-08.org.nvmexpress.discovery";
    let url = format!("nvme+tcp://{}/{discovery}/1", server.nvme(0));
    let text = match url.parse() {
        Ok(url) => attach_error(&url, &Options::default()).to_string(),
        Err(error) => error.to_string(),
    };
    assert!(text.contains("discovery"), "{text}");
}
