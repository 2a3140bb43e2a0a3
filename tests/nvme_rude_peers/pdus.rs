//! PDUs whose headers lie.

use longshore_nvme::command::{Fuse, NamespaceId};
use longshore_nvme::host::{Transfer, commands};
use longshore_nvme::sgl::SglDescriptor;
use longshore_nvme::status::Status;
use longshore_tests::nvme::HostOptions;
use longshore_tests::nvme::pdu::{Pdu, fes, kind};
use longshore_tests::scratch::Scratch;

use crate::{LIMITS, MEBI, SOON, Scene, assert_terminated, blocks, entry};

#[test]
fn headers_that_lie_end_the_connection_and_name_the_field() {
    let mut scene = Scene::new();
    let read = entry(&commands::read(blocks(1, 0, 1)), 5, false);
    let write = entry(&commands::write(blocks(1, 64, 1), 0), 5, true);
    let plain = Pdu::command(&read);
    let with_data = Pdu::command(&write).with_data(&[9; 512]);
    for (bad, field) in [
        // No type of a host, HLEN, PLEN too short, PDO within the header, PDO beyond the end, a digest
        // that was not agreed on.
        (plain.clone().set_byte(0, kind::CAPSULE_RESP), 0),
        (plain.clone().set_byte(0, kind::C2H_DATA), 0),
        (plain.clone().set_byte(0, 0x08), 0),
        (plain.clone().set_byte(2, 71), 2),
        (plain.clone().set_byte(2, 255), 2),
        (plain.clone().set_word(4, 71), 4),
        (plain.clone().set_word(4, 0), 4),
        (with_data.clone().set_byte(3, 8), 3),
        (with_data.clone().set_byte(3, 74), 3),
        (plain.clone().set_byte(1, 0x01), 1),
        (with_data.clone().set_byte(1, 0x02), 1),
    ] {
        let mut queue = scene.queue();
        queue.peer.send(&bad).unwrap();
        let found = queue.assert_terminated(fes::INVALID_PDU_HEADER_FIELD);
        assert_eq!(found, field, "{bad:?}");
        scene.assert_others_do_not_notice();
    }
    assert_eq!(scene.stored(64, 1), [0; 512]);
}

#[test]
fn a_capsule_of_4_gib_is_refused_without_taking_memory() {
    let mut scene = Scene::new();
    let mut write = commands::write(blocks(1, 64, 8), 0);
    write.entry.set_sgl(SglDescriptor::Offset {
        offset: 0,
        length: 4096,
    });
    let entry = entry(&write, 5, true);
    for plen in [u32::MAX, 1 << 30, 72 + 300_000] {
        let mut queue = scene.queue();
        let capsule = Pdu::command(&entry).with_data(&[9; 512]).set_word(4, plen);
        queue.peer.send(&capsule).unwrap();
        queue.assert_terminated(fes::DATA_TRANSFER_LIMIT_EXCEEDED);
    }
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(8 * MEBI);
    assert_eq!(scene.stored(64, 8), [0; 4096]);
}

#[test]
fn sgls_that_cannot_be_fail_their_command_and_the_queue_lives() {
    let mut scene = Scene::new();
    let mut queue = scene.queue();
    let write = commands::write(blocks(1, 64, 1), 0);
    let length = 512;
    for (sgl, status) in [
        (
            SglDescriptor::Address {
                address: 1 << 20,
                length,
            },
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (
            SglDescriptor::Other(0x30),
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (
            SglDescriptor::Offset {
                offset: 600,
                length,
            },
            Status::SGL_OFFSET_INVALID,
        ),
        (
            SglDescriptor::Offset {
                offset: u64::MAX,
                length,
            },
            Status::SGL_OFFSET_INVALID,
        ),
        (
            SglDescriptor::Offset { offset: 4, length },
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            SglDescriptor::Offset {
                offset: 0,
                length: u32::MAX,
            },
            Status::DATA_SGL_LENGTH_INVALID,
        ),
    ] {
        let mut command = write;
        command.entry.set_sgl(sgl);
        command.entry.set_id(longshore_nvme::command::CommandId(3));
        let capsule = Pdu::command(&command.entry.0).with_data(&[9; 512]);
        queue.peer.send(&capsule).unwrap();
        assert_eq!(Status(queue.status(3)), status, "{sgl:?}");
    }
    queue.assert_lives();
    assert_eq!(scene.stored(64, 1), [0; 512]);
    scene.assert_others_do_not_notice();
}

#[test]
fn a_command_identifier_in_use_is_a_conflict_and_the_first_goes_on() {
    let mut scene = Scene::new();
    let mut queue = scene.queue();
    let r2t = queue.start_write(128, 32, 6);
    queue.start(&commands::read(blocks(1, 0, 1)), 6);
    assert_eq!(Status(queue.status(6)), Status::COMMAND_ID_CONFLICT);
    let data = Pdu::h2c_data(6, r2t.half(10), 0, &[3; 16_384]);
    queue.peer.send(&data).unwrap();
    assert_eq!(queue.status(6), 0);
    assert_eq!(scene.stored(128, 32), [3; 16_384]);
    scene.assert_others_do_not_notice();
}

#[test]
fn more_commands_than_the_queue_has_entries_end_the_connection() {
    let mut scene = Scene::new();
    let mut queue = scene.queue();
    // Writes that wait for their data.
    let write = commands::write(blocks(1, 64, 32), 0);
    for id in 0..100 {
        let capsule = Pdu::command(&entry(&write, id, false));
        if queue.peer.send(&capsule).is_err() {
            break;
        }
    }
    queue.assert_terminated(fes::PDU_SEQUENCE_ERROR);
    scene.assert_others_do_not_notice();
    assert_eq!(scene.stored(64, 32), [0; 16_384]);
}

#[test]
fn a_damaged_header_digest_ends_the_connection_and_a_data_digest_its_command() {
    let mut scene = Scene::new();
    let options = HostOptions::default().digests(true, true);
    let mut host = scene.host(&options);
    let write = entry(&commands::write(blocks(1, 700, 1), 0), 0x30, true);
    let capsule = Pdu::command(&write).with_data(&[5; 512]);
    // The queue's own machine knows nothing of these commands, so the answers are looked at as bytes.
    let peer = host.queues.remove(0);
    let mut stream = peer.stream().try_clone().unwrap();
    let mut bytes = capsule.to_bytes_with_digests();
    *bytes.last_mut().unwrap() ^= 1;
    std::io::Write::write_all(&mut stream, &bytes).unwrap();
    let mut response = [0; 28];
    std::io::Read::read_exact(&mut stream, &mut response).unwrap();
    assert_eq!(response[0], kind::CAPSULE_RESP);
    let status = u16::from_le_bytes([response[22], response[23]]) >> 1;
    assert_eq!(Status(status).code(), Status::TRANSIENT_TRANSPORT_ERROR);
    assert_eq!(scene.stored(700, 1), [0; 512]);
    // The connection lives: the same, undamaged.
    let bytes = capsule.to_bytes_with_digests();
    std::io::Write::write_all(&mut stream, &bytes).unwrap();
    std::io::Read::read_exact(&mut stream, &mut response).unwrap();
    assert_eq!(u16::from_le_bytes([response[22], response[23]]) >> 1, 0);
    assert_eq!(scene.stored(700, 1), [5; 512]);
    // A bit of the header.
    let mut bytes = capsule.to_bytes_with_digests();
    bytes[50] ^= 1;
    std::io::Write::write_all(&mut stream, &bytes).unwrap();
    std::io::Read::read_exact(&mut stream, &mut response[..24]).unwrap();
    assert_eq!(response[0], kind::C2H_TERM_REQ);
    let status = u16::from_le_bytes([response[8], response[9]]);
    assert_eq!(status, fes::HEADER_DIGEST_ERROR);
    scene.assert_others_do_not_notice();
}

/// Data that nobody wants pass by as they do for any command, before the pair ends.
#[test]
fn a_fused_half_that_is_refused_while_its_data_are_damaged_ends_its_pair_and_nothing_else() {
    // A file takes its time, so that the pair is under way when the damage is found.
    let scratch = Scratch::new("nvme-fused");
    let path = scratch.join("disk0.img");
    let volume = format!("disk0,backend=file,path={},size=64M", path.display());
    let mut scene = Scene::on(&volume, LIMITS);
    let mut host = scene.host(&HostOptions::default().digests(true, true));
    let peer = host.queues.remove(0);
    let mut stream = peer.stream().try_clone().unwrap();
    let mut compare = commands::compare(blocks(1, 0, 8));
    compare.entry.set_fuse(Fuse::First);
    // 16 blocks, of which 8 come along.
    let mut write = commands::write(blocks(1, 0, 16), 0).with(Transfer::ToController(4096));
    write.entry.set_fuse(Fuse::Second);
    for damage in [0, 1, 1, 1] {
        let compare = Pdu::command(&entry(&compare, 0x30, true)).with_data(&[7; 4096]);
        let write = Pdu::command(&entry(&write, 0x31, true)).with_data(&[8; 4096]);
        let mut bytes = [compare, write]
            .map(|pdu| pdu.to_bytes_with_digests())
            .concat();
        *bytes.last_mut().unwrap() ^= damage;
        std::io::Write::write_all(&mut stream, &bytes).unwrap();
        let mut responses = [[0; 28]; 2];
        for response in &mut responses {
            std::io::Read::read_exact(&mut stream, response).unwrap();
            assert_eq!(response[0], kind::CAPSULE_RESP);
        }
        assert_eq!(responses.map(|response| response[20]), [0x30, 0x31]);
        let [low, high] = [responses[1][22], responses[1][23]];
        assert_ne!(u16::from_le_bytes([low, high]) >> 1, 0, "the Write fails");
    }
    let flush = Pdu::command(&entry(&commands::flush(NamespaceId(1)), 0x32, false));
    std::io::Write::write_all(&mut stream, &flush.to_bytes_with_digests()).unwrap();
    let mut response = [0; 28];
    std::io::Read::read_exact(&mut stream, &mut response).unwrap();
    assert_eq!(
        (response[20], response[22] >> 1, response[23]),
        (0x32, 0, 0)
    );
    scene.assert_others_do_not_notice();
}

#[test]
fn an_h2c_term_req_ends_the_connection_quietly() {
    let mut scene = Scene::new();
    for (plen, echo) in [(24, 0), (152, 128)] {
        let mut queue = scene.queue();
        let request = Pdu::new(kind::H2C_TERM_REQ, 24)
            .set_half(8, fes::PDU_SEQUENCE_ERROR)
            .set_word(4, plen);
        let bytes = [request.to_bytes(), vec![1; echo]].concat();
        queue.peer.send_bytes(&bytes).unwrap();
        let (rest, closed) = queue.peer.drain(SOON).unwrap();
        assert!(closed && rest.is_empty(), "{rest:?}");
    }
    let mut peer = scene.initialized();
    let lying = Pdu::new(kind::H2C_TERM_REQ, 24).set_word(4, 1 << 20);
    peer.send(&lying).unwrap();
    assert_terminated(&mut peer, fes::INVALID_PDU_HEADER_FIELD);
    scene.assert_others_do_not_notice();
}
