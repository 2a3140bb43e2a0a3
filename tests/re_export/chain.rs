//! Several servers in a row.

use crate::rig::{BOTH, Client, Iscsi, NvmeTcp, over, pattern, serving};

#[test]
fn data_passes_a_chain_of_both_protocols() {
    let b = serving("m,backend=mem,size=8M").start().unwrap();
    let middle = over(&b, Iscsi, "").start().unwrap();
    let a = over(&middle, NvmeTcp, "").start().unwrap();
    let bytes = pattern(65536, 2 << 20, 1);
    for protocol in BOTH {
        let client = Client::new(&a, protocol);
        client.write(65536, &bytes, true).unwrap();
        assert!(client.read(65536, bytes.len()).unwrap() == bytes);
        assert!(Client::new(&b, protocol).read(65536, bytes.len()).unwrap() == bytes);
    }
}

#[test]
fn a_server_can_offer_its_own_volume_again() {
    // Nonsense, and yet it has to end: the volume behind is another one of the same process.
    let portal = longshore_tests::server::free_port();
    let b = longshore_tests::server::ServerBuilder::new()
        .volume("m,backend=mem,size=1M")
        .iscsi_at(portal, "")
        .nvme()
        .start()
        .unwrap();
    let a = over(&b, Iscsi, "").start().unwrap();
    let again = over(&a, Iscsi, "").start().unwrap();
    let client = Client::new(&again, Iscsi);
    client.write(0, &pattern(0, 4096, 3), false).unwrap();
    drop((client, b));
    let stopped = again.stop(std::time::Duration::from_secs(40)).unwrap();
    assert_eq!(stopped.code(), Some(0));
}
