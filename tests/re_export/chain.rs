//! Several servers in a row.

use std::time::{Duration, Instant};

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
fn a_chain_whose_end_is_gone_can_be_stopped() {
    let b = serving("m,backend=mem,size=1M").start().unwrap();
    let middle = over(&b, Iscsi, "").start().unwrap();
    let a = over(&middle, NvmeTcp, "").start().unwrap();
    let client = Client::new(&a, Iscsi);
    client.write(0, &pattern(0, 4096, 3), false).unwrap();
    drop((client, b));
    for server in [a, middle] {
        let start = Instant::now();
        let stopped = server.stop(Duration::from_secs(40)).unwrap();
        assert_eq!(stopped.code(), Some(0));
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{:?}",
            start.elapsed()
        );
    }
}
