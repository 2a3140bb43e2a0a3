//! Data that is written reads back, however it travels.

use longshore_initiator::attach::attach;
use longshore_initiator::info::Protocol;
use longshore_initiator::operation::{Data, Operation};
use longshore_initiator::options::{DigestWish, Options, QueueMaps, ReceivePath, SendPath};
use longshore_reactor::Buffer;

use crate::Fact;
use crate::load::{Engine, Load, Model, Queues, Remote, extent, one, read, write};
use crate::pattern;
use crate::peer::{Maker, Peer};

pub const FACTS: &[Fact] = &[
    Fact::of_all("every_length_up_to_past_a_megabyte_reads_back", lengths),
    Fact::of_all("work_is_verified_at_depths_1_to_128", depths),
    Fact::of_all("work_is_verified_with_each_digest", digests),
    Fact::of_all("work_is_verified_over_1_4_and_16_queues", many_queues),
    Fact::of_all(
        "work_is_verified_by_each_way_of_sending_and_receiving",
        transfer_paths,
    ),
    Fact::of(
        is_iscsi,
        "write_data_travels_by_each_combination_of_keys",
        write_keys,
    ),
    Fact::of(
        is_iscsi,
        "small_segments_and_bursts_carry_everything",
        small_segments,
    ),
    Fact::of(is_nvme, "writes_travel_in_capsules_and_by_r2t", in_capsule),
    Fact::of(
        is_nvme,
        "work_is_verified_without_flow_control_and_with_alignment",
        nvme_settings,
    ),
    Fact::of(
        is_nvme,
        "reads_writes_and_polling_have_queues_of_their_own",
        queue_maps,
    ),
    Fact::of_all(
        "shared_buffers_and_dropped_reads_move_their_bytes",
        shared_and_dropped,
    ),
    Fact::of_all(
        "the_last_block_is_there_and_the_one_behind_it_is_not",
        last_block,
    ),
    Fact::of_all(
        "a_remote_volume_verifies_many_operations_in_flight",
        remote_volume,
    ),
    Fact::of_all(
        "operations_larger_than_the_peer_takes_go_in_pieces",
        large_operations,
    ),
];

fn is_iscsi(peer: &Peer) -> bool {
    peer.protocol == Protocol::Iscsi
}

fn is_nvme(peer: &Peer) -> bool {
    peer.protocol == Protocol::NvmeTcp
}

/// Attaches, works and logs out.
fn verified(peer: &Peer, options: &Options, load: &Load) {
    let mut queues = Queues::attach(&peer.url(), options);
    load.run(&mut queues);
    queues.close();
}

fn lengths(peer: &Peer) {
    let mut queues = Queues::attach(&peer.url(), &peer.options());
    let most = u64::from(
        queues
            .attachment
            .info
            .max_transfer_blocks
            .unwrap_or(u32::MAX),
    );
    // One block, around pages, capsules, segments and bursts, and past a megabyte.
    let lengths = [
        1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 127, 128, 129, 511, 512, 513, 1023, 2047, 2048, 2049,
        2063,
    ];
    for (generation, blocks) in (1..).zip(lengths.into_iter().filter(|&blocks| blocks <= most)) {
        for lba in [0, 3] {
            let mut bytes = vec![0; usize::try_from(blocks * 512).expect("short")];
            pattern::fill(&mut bytes, lba, generation, 512);
            let result = write(&mut queues, lba, &bytes, false);
            result.unwrap_or_else(|failure| panic!("write {blocks} blocks at {lba}: {failure}"));
            let found = read(&mut queues, lba, blocks);
            let found = found.unwrap_or_else(|failure| panic!("read {blocks} at {lba}: {failure}"));
            assert!(found[..] == bytes, "{blocks} blocks at {lba}");
        }
    }
    queues.close();
}

fn depths(peer: &Peer) {
    for depth in [1, 2, 16, 128] {
        let mut options = peer.options();
        options.depth = u16::try_from(depth).expect("small");
        let mut load = Load::new(peer, 400, depth);
        load.blocks_max = if depth == 128 { 40 } else { 200 };
        load.seed = u64::from(options.depth);
        verified(peer, &options, &load);
    }
}

fn digests(peer: &Peer) {
    for header in [DigestWish::Off, DigestWish::Require] {
        for data in [DigestWish::Off, DigestWish::Require] {
            let mut options = peer.options();
            options.header_digest = header;
            options.data_digest = data;
            verified(peer, &options, &Load::new(peer, 200, 16));
        }
    }
}

fn many_queues(peer: &Peer) {
    for count in [1, 4, 16] {
        let mut options = peer.options();
        options.queues = QueueMaps::plain(count);
        options.depth = 16;
        let mut queues = Queues::attach(&peer.url(), &options);
        assert_eq!(queues.attachment.maps.default, count, "queues granted");
        let mut load = Load::new(peer, 400, usize::from(count) * 8);
        load.blocks_max = 80;
        load.run(&mut queues);
        for (index, queue) in queues.attachment.queues.iter().enumerate() {
            assert!(
                queue.counters().bytes_received > 0,
                "queue {index} of {count} did nothing"
            );
        }
        queues.close();
    }
}

fn transfer_paths(peer: &Peer) {
    let send_paths = [SendPath::Copy, SendPath::Gather, SendPath::ZeroCopy];
    for (index, send) in send_paths.into_iter().enumerate() {
        for receive in [ReceivePath::Buffered, ReceivePath::Direct] {
            let mut options = peer.options();
            options.paths.send = send;
            options.paths.receive = receive;
            options.paths.zerocopy_threshold = 4096;
            options.paths.zerocopy_fallback = index % 2 == 0;
            options.data_digest = match receive {
                ReceivePath::Buffered => DigestWish::Off,
                ReceivePath::Direct => DigestWish::Ask,
            };
            verified(peer, &options, &Load::new(peer, 200, 16));
        }
    }
}

fn write_keys(peer: &Peer) {
    for initial_r2t in [false, true] {
        for immediate_data in [false, true] {
            let mut options = peer.options();
            options.iscsi.preferences.initial_r2t = initial_r2t;
            options.iscsi.preferences.immediate_data = immediate_data;
            let mut queues = Queues::attach(&peer.url(), &options);
            let key = |name: &str| {
                let mut keys = queues.attachment.negotiated.iter();
                keys.find(|(key, _)| key == name)
                    .map(|(_, value)| value.clone())
            };
            let [r2t, immediate] =
                ["InitialR2T", "ImmediateData"].map(|name| key(name).unwrap_or_default());
            // The rules are Or and And: the initiator's Yes, and its No, decide.
            assert_eq!(r2t, if initial_r2t { "Yes" } else { "No" });
            assert_eq!(immediate, if immediate_data { "Yes" } else { "No" });
            Load::new(peer, 150, 16).run(&mut queues);
            queues.close();
        }
    }
}

fn small_segments(peer: &Peer) {
    for (first_burst, max_burst, segment, r2ts) in [
        (512, 512, 512, 1),
        (1024, 4096, 1536, 1),
        (4096, 8192, 8192, 4),
        (65536, 65536, 4096, 16),
    ] {
        let mut options = peer.options();
        let keys = &mut options.iscsi.preferences;
        keys.first_burst_length = first_burst;
        keys.max_burst_length = max_burst;
        keys.max_recv_data_segment_length = segment;
        keys.max_outstanding_r2t = r2ts;
        let mut load = Load::new(peer, 100, 8);
        load.blocks_max = 64;
        verified(peer, &options, &load);
    }
}

fn in_capsule(peer: &Peer) {
    // nvmet's first port takes 16 KiB in a capsule, its second 4 KiB; ours takes 8 KiB.
    for portal in peer.portals {
        for max_r2t in [1, 16] {
            let mut options = peer.options();
            options.nvme.max_r2t = max_r2t;
            let mut queues = Queues::attach(&peer.url_at(portal), &options);
            let mut load = Load::new(peer, 200, 16);
            load.reads = 20;
            load.blocks_max = 64;
            load.run(&mut queues);
            queues.close();
        }
    }
}

fn nvme_settings(peer: &Peer) {
    for (flow_control, hpda) in [(false, 0), (true, 3), (false, 31)] {
        let mut options = peer.options();
        options.nvme.flow_control = flow_control;
        options.nvme.hpda = hpda;
        if peer.maker == Maker::Nvmet && hpda > 0 {
            // It has no alignment, and closes the connection.
            assert!(attach(&peer.url(), &options).is_err());
            options.nvme.hpda = 0;
        }
        verified(peer, &options, &Load::new(peer, 150, 16));
    }
}

fn queue_maps(peer: &Peer) {
    let mut options = peer.options();
    options.queues = QueueMaps {
        default: 2,
        read: 2,
        poll: 2,
    };
    let mut queues = Queues::attach(&peer.url(), &options);
    assert_eq!(queues.attachment.maps, options.queues, "queues granted");
    Load::new(peer, 300, 32).run(&mut queues);
    for (index, queue) in queues.attachment.queues.iter().enumerate() {
        assert!(
            queue.counters().bytes_received > 0,
            "queue {index} did nothing"
        );
    }
    queues.close();
    let load = Load::new(peer, 200, 16);
    let mut model = Model::new(load.region.clone());
    let mut remote = Remote::open(&peer.url(), &options);
    load.run_on(&mut remote, &mut model);
    let mut polled = remote.polled();
    load.run_on(&mut polled, &mut model);
    model.verify(&mut polled);
    polled.close();
}

fn shared_and_dropped(peer: &Peer) {
    let mut queues = Queues::attach(&peer.url(), &peer.options());
    let mut buffer = Buffer::allocate(65536);
    for (index, byte) in buffer.iter_mut().enumerate() {
        *byte = u8::try_from(index % 251).expect("below 256");
    }
    let buffer = std::sync::Arc::new(buffer);
    for tag in 0..8 {
        let operation = Operation::Write {
            extent: extent(tag * 128, 32),
            fua: false,
        };
        let data = Data::Shared {
            buffer: std::sync::Arc::clone(&buffer),
            start: usize::try_from(tag).expect("small") * 512,
        };
        queues.submit(operation, data, tag);
    }
    let mut ended = 0;
    while ended < 8 {
        for completion in queues.wait() {
            completion
                .result
                .unwrap_or_else(|failure| panic!("{failure}"));
            ended += 1;
        }
    }
    for lba in 0..8 {
        let found = read(&mut queues, lba * 128, 32).unwrap_or_else(|failure| panic!("{failure}"));
        let start = usize::try_from(lba).expect("small") * 512;
        assert!(found[..] == buffer[start..start + 16384], "write {lba}");
    }
    let whole = Operation::Read {
        extent: extent(0, 512),
    };
    let before: u64 = received(&queues);
    let (result, _) = one(&mut queues, whole, Data::Discard);
    result.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(received(&queues) - before >= 512 * 512);
    queues.close();
}

fn received(queues: &Queues) -> u64 {
    let counters = queues
        .attachment
        .queues
        .iter()
        .map(|queue| queue.counters());
    counters.map(|counters| counters.bytes_received).sum()
}

fn last_block(peer: &Peer) {
    let mut remote = Remote::open(&peer.url(), &peer.options());
    let last = Peer::blocks(512) - 1;
    let mut bytes = vec![0; 512];
    pattern::fill(&mut bytes, last, 5, 512);
    write(&mut remote, last, &bytes, true).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(read(&mut remote, last, 1).unwrap()[..], bytes);
    for beyond in [
        extent(last + 1, 1),
        extent(last, 2),
        extent(u64::MAX - 1, 1),
    ] {
        let buffer = Buffer::allocate(usize::try_from(beyond.blocks.0 * 512).expect("short"));
        let (result, _) = one(
            &mut remote,
            Operation::Read { extent: beyond },
            Data::buffer(buffer),
        );
        assert!(result.is_err(), "{beyond:?}");
    }
    remote.close();
}

fn remote_volume(peer: &Peer) {
    let load = Load::new(peer, 800, 64);
    let mut remote = Remote::open(&peer.url(), &peer.options());
    load.run(&mut remote);
    remote.close();
}

fn large_operations(peer: &Peer) {
    let mut remote = Remote::open(&peer.url(), &peer.options());
    let blocks = if peer.maker.is_slow() {
        6 << 11
    } else {
        20 << 11
    };
    let mut bytes = vec![0; blocks * 512];
    pattern::fill(&mut bytes, 100, 9, 512);
    write(&mut remote, 100, &bytes, false).unwrap_or_else(|failure| panic!("{failure}"));
    let found = read(&mut remote, 100, u64::try_from(blocks).expect("few"));
    assert!(found.unwrap_or_else(|failure| panic!("{failure}"))[..] == bytes);
    remote.close();
}
