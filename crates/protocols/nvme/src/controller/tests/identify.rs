use super::*;
use crate::host::commands::identify;
use crate::io::limits;

const ALL: NamespaceId = NamespaceId::BROADCAST;

fn page(scene: &Scene, controller: &Controller, cns: u8, id: u32) -> Vec<u8> {
    let command = identify(cns, NamespaceId(id));
    let data = scene.send(controller, &command).data();
    assert_eq!(data.len(), 4096);
    data
}

fn status(scene: &Scene, controller: &Controller, cns: u8, id: u32) -> Status {
    let command = identify(cns, NamespaceId(id));
    scene.send(controller, &command).failure().0
}

#[test]
fn a_controller_says_who_it_is() {
    let scene = scene();
    let controller = scene.ready();
    let data = page(&scene, &controller, 1, 0);
    assert_eq!(&data[4..24], b"0123456789ab        ");
    assert_eq!(&data[24..33], b"Longshore");
    assert_eq!(data[33..64], [b' '; 31]);
    assert_eq!(&data[64..72], b"0.1.0   ");
    assert_eq!(u16_at(&data, 78), controller.id());
    assert_eq!(u32_at(&data, 80), 0x0002_0000, "VER");
    assert_eq!(data[111], 1, "CNTRLTYPE");
    assert_eq!(data[768..1024], nqn("shared").to_field());
}

#[test]
fn a_controller_says_what_it_can() {
    let scene = scene();
    let data = page(&scene, &scene.ready(), 1, 0);
    assert_eq!(data[76], 0b1011, "CMIC");
    assert_eq!(data[77], 8, "MDTS: 1 MiB");
    assert_eq!(u32_at(&data, 92), 1 << 8 | 1 << 11, "OAES");
    assert_eq!(u32_at(&data, 96), 1 << 0 | 1 << 6, "CTRATT");
    assert_eq!([128, 130, 132].map(|at| u16_at(&data, at)), [1, 10, 50]);
    assert_eq!(u16_at(&data, 256), 0, "OACS");
    assert_eq!(data[258..263], [3, 3, 0b11, 0b10_0111, 63]);
    assert_eq!(u16_at(&data, 320), 1, "KAS");
    assert_eq!(data[342..344], [10, 0b0100_0001], "ANATT, ANACAP");
    assert_eq!((u32_at(&data, 344), u32_at(&data, 348)), (1, 1));
    assert_eq!(data[512..514], [0x66, 0x44], "SQES, CQES");
    assert_eq!(u16_at(&data, 514), 128, "MAXCMD");
    assert_eq!((u32_at(&data, 516), u32_at(&data, 540)), (16_384, 1024));
    assert_eq!(u16_at(&data, 520), 0b1_1111_1101, "ONCS");
    assert_eq!(u16_at(&data, 522), 1, "FUSES");
    assert_eq!(data[525], 0b111, "VWC");
    assert_eq!(
        u16_at(&data, 532),
        limits::COMPARE_AND_WRITE_BLOCKS - 1,
        "ACWU"
    );
    assert_eq!(u16_at(&data, 534), 1, "OCFS");
    assert_eq!(u32_at(&data, 536), 0x0030_0001, "SGLS");
    assert_eq!(u32_at(&data, 1792), (64 + 8192) / 16, "IOCCSZ");
    assert_eq!(u32_at(&data, 1796), 1, "IORCSZ");
    assert_eq!(data[1800..1806], [0, 0, 0, 1, 1, 0]);
}

#[test]
fn only_a_host_that_sees_a_volatile_cache_is_told_of_one() {
    let scene = scene();
    let guest = scene.enabled("guest", &nqn("shared"));
    assert_eq!(page(&scene, &guest, 1, 0)[525], 0b110);
}

#[test]
fn a_transfer_limit_is_rounded_down_to_what_mdts_can_say() {
    for (bytes, exponent, longest) in [
        (0, 1, 8192),
        (4096, 1, 8192),
        (100_000, 4, 65536),
        (1 << 17, 5, 1 << 17),
    ] {
        let scene = scene_with(ControllerLimits {
            transfer_bytes_max: bytes,
            ..ControllerLimits::default()
        });
        let controller = scene.ready();
        assert_eq!(page(&scene, &controller, 1, 0)[77], exponent);
        assert_eq!(controller.namespaces()[0].max_transfer_bytes, longest);
    }
}

#[test]
fn a_controller_of_discovery_is_one() {
    let scene = scene();
    let controller = scene.enabled("host", &discovery());
    let data = page(&scene, &controller, 1, 0);
    assert_eq!(data[111], 2, "CNTRLTYPE");
    assert_eq!(data[768..1024], discovery().to_field());
    assert_eq!(u32_at(&data, 92), 1 << 31, "OAES");
    assert_eq!(data[261], 0b10_0100, "LPA");
    assert_eq!((u32_at(&data, 516), u16_at(&data, 520)), (0, 0));
    assert_eq!(u32_at(&data, 1792), 4, "IOCCSZ");
    for cns in [0, 2, 3, 0x1c] {
        assert_eq!(status(&scene, &controller, cns, 1), Status::INVALID_FIELD);
    }
}

#[test]
fn a_namespace_tells_its_physical_block_and_the_names_that_follow_from_its_naa() {
    let with = |naa: &str| {
        let parameters = NamespaceParameters {
            names: WorldwideNames {
                naa: Some(naa.parse().unwrap()),
                ..WorldwideNames::default()
            },
            ..parameters(512, 2048)
        };
        Namespace::new(parameters)
    };
    let five = with("5001405aaaabbbbb");
    assert_eq!(
        five.eui64(),
        Some([0, 0x14, 5, 0x0a, 0xaa, 0xab, 0xbb, 0xbb])
    );
    assert_eq!(five.nguid(), Namespace::new(parameters(512, 2048)).nguid());
    let six = with("6001405aaaabbbbb0123456789abcdef");
    assert_eq!(six.eui64(), None);
    assert_eq!(
        six.nguid().unwrap()[8..],
        [0, 0x14, 5, 0x0a, 0xaa, 0xab, 0xbb, 0xbb]
    );
}

#[test]
fn a_namespace_says_what_it_is() {
    let scene = scene();
    let data = page(&scene, &scene.ready(), 0, 1);
    assert_eq!([0, 8, 16].map(|at| u64_at(&data, at)), [2048; 3]);
    assert_eq!(data[24], 1 << 4, "NSFEAT");
    assert_eq!(data[25..27], [0, 0], "NLBAF, FLBAS");
    assert_eq!(data[30..34], [1, 0xff, 0, 0b1001], "NMIC to DLFEAT");
    assert_eq!(u64_at(&data, 48), 1 << 20, "NVMCAP");
    assert_eq!(
        [64, 66, 68, 70, 72].map(|at| u16_at(&data, at)),
        [7; 5],
        "NPWG to NOWS"
    );
    assert_eq!(u16_at(&data, 74), 32 * 1024, "MSSRL");
    assert_eq!(u32_at(&data, 76), 128 * 1024, "MCL");
    assert_eq!(data[80], 127, "MSRC");
    assert_eq!(u32_at(&data, 92), 1, "ANAGRPID");
    assert_eq!(data[99], 0, "NSATTR");
    assert_eq!(data[104..120], scene.namespaces[0].nguid().unwrap());
    assert_eq!(data[120..128], [0; 8], "EUI64");
    assert_eq!(u32_at(&data, 128), 9 << 16, "LBAF0");
    let data = page(&scene, &scene.ready(), 0, 3);
    assert_eq!(u32_at(&data, 128), 12 << 16, "LBAF0");
    assert_eq!(u16_at(&data, 64), 0, "NPWG");
}

#[test]
fn a_namespace_has_the_size_it_has_now() {
    let scene = scene();
    let controller = scene.ready();
    assert!(scene.namespaces[0].resize(4096));
    assert!(!scene.namespaces[0].resize(4096));
    assert_eq!(u64_at(&page(&scene, &controller, 0, 1), 0), 4096);
}

#[test]
fn a_host_that_must_not_write_is_told() {
    let scene = scene();
    let guest = scene.enabled("guest", &nqn("shared"));
    assert_eq!(page(&scene, &guest, 0, 3)[99], 1);
    assert_eq!(page(&scene, &guest, 8, 3)[8], 1);
    assert!(guest.namespaces()[0].read_only);
}

#[test]
fn an_nguid_is_locally_administered_and_not_zero() {
    let mut parameters = parameters(512, 1);
    parameters.uuid = Uuid::nil();
    let nguid = Namespace::new(parameters).nguid().unwrap();
    assert_eq!(nguid[8] & 3, 2);
}

#[test]
fn namespaces_a_host_does_not_see_are_not_there() {
    let scene = scene();
    let guest = scene.enabled("guest", &nqn("shared"));
    for cns in [0, 5, 8, 0x11, 0x1b] {
        assert_eq!(page(&scene, &guest, cns, 1), [0; 4096], "CNS {cns:#x}");
    }
    assert_eq!(
        status(&scene, &guest, 3, 1),
        Status::INVALID_NAMESPACE_OR_FORMAT
    );
    assert_eq!(ids(&page(&scene, &guest, 2, 0)), [3]);
    assert_eq!(page(&scene, &guest, 0x12, 1), [0; 4096]);
    let seen: Vec<_> = guest.namespaces().iter().map(|ns| ns.id.0).collect();
    assert_eq!(seen, [3]);
}

#[test]
fn lists_of_namespaces_begin_after_the_one_that_is_named() {
    let scene = scene();
    let controller = scene.ready();
    for cns in [2, 7, 0x10, 0x1a] {
        let list = |after| ids(&page(&scene, &controller, cns, after));
        assert_eq!(list(0), [1, 3]);
        assert_eq!(list(1), [3]);
        assert_eq!(list(2), [3]);
        assert_eq!(list(3), [0; 0]);
        assert_eq!(list(0xffff_fffd), [0; 0]);
        for id in [0xffff_fffe, 0xffff_ffff] {
            assert_eq!(
                status(&scene, &controller, cns, id),
                Status::INVALID_NAMESPACE_OR_FORMAT
            );
        }
    }
}

#[test]
fn a_namespace_is_described_by_nguid_uuid_and_command_set() {
    let scene = scene();
    let data = page(&scene, &scene.ready(), 3, 1);
    assert_eq!(data[..4], [2, 16, 0, 0]);
    assert_eq!(data[4..20], scene.namespaces[0].nguid().unwrap());
    assert_eq!(data[20..24], [3, 16, 0, 0]);
    let uuid = scene.namespaces[0].parameters().uuid;
    assert_eq!(data[24..40], *uuid.as_bytes());
    assert_eq!(data[40..45], [4, 1, 0, 0, 0]);
    assert_eq!(data[45..], [0; 4051]);
}

#[test]
fn identifiers_no_namespace_can_have_are_invalid() {
    let scene = scene();
    let controller = scene.ready();
    for (cns, id) in [
        (0, 0),
        (0, ALL.0),
        (3, 0),
        (3, ALL.0),
        (5, 0),
        (8, 0),
        (8, ALL.0),
        (0x11, ALL.0),
        (0, 16_385),
        (0x12, 16_385),
    ] {
        assert_eq!(
            status(&scene, &controller, cns, id),
            Status::INVALID_NAMESPACE_OR_FORMAT,
            "CNS {cns:#x} NSID {id:#x}"
        );
    }
}

#[test]
fn the_structure_without_a_command_set_says_that_it_is_ready() {
    let scene = scene();
    let data = page(&scene, &scene.ready(), 8, 1);
    assert_eq!(data[..3], [0, 1, 0xff]);
    assert_eq!(u32_at(&data, 4), 1, "ANAGRPID");
    assert_eq!(data[14], 1, "NSTAT");
}

#[test]
fn there_is_one_command_set() {
    let scene = scene();
    let controller = scene.ready();
    for cns in [5, 6, 7, 0x1a, 0x1b] {
        let mut command = identify(cns, NamespaceId(1));
        scene.send(&controller, &command).result();
        command.entry.0[47] = 2;
        let answer = scene.send(&controller, &command);
        assert_eq!(answer.failure().0, Status::INVALID_FIELD);
    }
    let sets = |controller_id: u16| {
        let command =
            identify(0x1c, NamespaceId(0)).dword(10, 0x1c | u32::from(controller_id) << 16);
        scene.send(&controller, &command)
    };
    for id in [0xffff, controller.id()] {
        let data = sets(id).data();
        assert_eq!(u64_at(&data, 0), 1);
        assert_eq!(data[8..], [0; 4088]);
    }
    assert_eq!(sets(77).failure().0, Status::INVALID_FIELD);
}

#[test]
fn controllers_are_listed_from_the_one_that_is_named() {
    let scene = scene();
    let first = scene.ready();
    let guest = scene.enabled("guest", &nqn("shared"));
    let list = |cns: u8, id: u32, from: u16| {
        let command =
            identify(cns, NamespaceId(id)).dword(10, u32::from(cns) | u32::from(from) << 16);
        let data = scene.send(&first, &command).data();
        let count = usize::from(u16_at(&data, 0));
        (0..count)
            .map(|n| u16_at(&data, 2 + 2 * n))
            .collect::<Vec<_>>()
    };
    assert_eq!(list(0x13, 0, 0), [first.id(), guest.id()]);
    assert_eq!(list(0x13, 0, first.id() + 1), [guest.id()]);
    assert_eq!(list(0x12, 1, 0), [first.id()]);
    assert_eq!(list(0x12, 3, 0), [first.id(), guest.id()]);
    assert_eq!(list(0x13, 0, 0xffff), [0; 0]);
}

#[test]
fn unknown_structures_are_an_invalid_field() {
    let scene = scene();
    let controller = scene.ready();
    for cns in [4, 9, 0x14, 0x15, 0x16, 0x17, 0x1d, 0xff] {
        assert_eq!(status(&scene, &controller, cns, 1), Status::INVALID_FIELD);
    }
}

#[test]
fn a_host_without_room_for_the_data_is_told() {
    let scene = scene();
    let controller = scene.ready();
    let command = identify(1, NamespaceId(0)).with(Transfer::ToHost(4092));
    assert_eq!(
        scene.send(&controller, &command).failure().0,
        Status::DATA_SGL_LENGTH_INVALID
    );
    let command = identify(1, NamespaceId(0)).with(Transfer::ToHost(8192));
    assert_eq!(scene.send(&controller, &command).data().len(), 4096);
}
