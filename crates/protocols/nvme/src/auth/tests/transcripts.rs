//! Conversations with Linux, as they were recorded: group null, SHA-256, both directions.

use super::*;

const HOST_SECRET: &str = "DHHC-1:01:RIMq8wC7bb1BS0FKMBeV5dMXqQzYZOvvCZfTykmlR0LeRJ5k:";
const CONTROLLER_SECRET: &str = "DHHC-1:03:rCp9Z+JGd3S5R6dm3dWWVUnxrjDslw3oytCwjX5qHYxPpNfi4pvnwe1iWkbUq7iZgXk8MZjKrw/hwcAwbpG1nnyiAwQ=:";

/// The host of Linux 6.12.117 (Debian) and this controller.
const LINUX_HOST: [&str; 5] = [
    // negotiate
    "000000000000000101000306010203000000000000000000000000000000000000000000000000000000000102030405\
         000000000000000000000000000000000000000000000000",
    // challenge
    "0101000000002000010000008e4d04e67ead82557ed545148a6d74617cc865e7dad192dba6c106fa4a77286369c614f5",
    // reply
    "010200000000200001000000b56a1992cea11d3198901be24fa4f12dab68a069a4a0204404d6ec43423881d556a26f16\
         62aa9996cfa27bb160b616bfe4b98a00ef55dc04a0161ea700b1cf8a97369ca7",
    // success1
    "01030000000020000100000000000000fa26b9a217b03a0753bcec9feb513b6c46e46486ea4e70cef16d202dfb6ddd56",
    // success2
    "01040000000000000000000000000000",
];

/// This host and nvmet of Linux 6.12.117 (Debian).
const LINUX_CONTROLLER: [&str; 5] = [
    // negotiate
    "0000000042b0000101000306010203000000000000000000000000000000000000000000000000000000000102030405\
         000000000000000000000000000000000000000000000000",
    // challenge
    "0101000042b02000010000006efa1454fe041d8311338e0115c8992bb100b197c5c8bc550bf025a1c537f0aa747a6aca",
    // reply
    "0102000042b0200001000000f28f3c9d0d9d427b1c5b7bca3ec40f2a998f5dcf3f891405dc69285066afeaa9e84dbed8\
         26525468dfd611e3be081645dfecdf0cb0797934ebd42fc2921246f2a6cc2a11",
    // success1
    "0103000042b02000010000000000000063012c0aa2fbd1dbf0a107e9be95ece5b6ab2096b791f7745ecfdfda244981e7",
    // success2
    "0104000042b000000000000000000000",
];

fn decoded(conversation: [&str; 5]) -> [Vec<u8>; 5] {
    conversation.map(|hex| {
        let digits = hex.as_bytes().chunks_exact(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.map(byte).collect()
    })
}

fn linux_parties() -> Parties {
    Parties {
        host: Nqn::new("nqn.2026-11.local.longshore:tests-1").unwrap(),
        subsystem: Nqn::new("nqn.2026-11.local.longshore:null").unwrap(),
    }
}

#[test]
fn a_host_of_linux_is_let_in_and_gets_its_proof() {
    let [negotiate, challenge, reply, success1, success2] = decoded(LINUX_HOST);
    let credentials = Arc::new(Credentials {
        host: Secret::parse(HOST_SECRET).unwrap(),
        controller: Some(Secret::parse(CONTROLLER_SECRET).unwrap()),
        hashes: vec![Hash::Sha256],
        groups: vec![Group::Null],
        required: true,
        concatenation: Concatenation::None,
    });
    let mut controller = Controller::new(linux_parties());
    let sequence = u32::from_le_bytes(challenge[12..16].try_into().unwrap());
    let mut drawn = |out: &mut [u8]| match out.len() {
        4 => out.copy_from_slice(&(sequence - 1).to_le_bytes()),
        _ => out.copy_from_slice(&challenge[16..]),
    };
    let sent = controller.send(&negotiate, &credentials, &mut drawn);
    assert!(matches!(sent, Sent::Taken), "{sent:?}");
    assert_eq!(
        receive(&mut controller),
        (Received::Message, challenge.clone())
    );
    send(&mut controller, &credentials, &reply);
    assert_eq!(receive(&mut controller), (Received::Message, success1));
    let (sent, _) = send(&mut controller, &credentials, &success2);
    assert!(matches!(sent, Sent::Authenticated), "{sent:?}");
}

#[test]
fn a_controller_of_linux_gets_the_proof_it_accepted_and_is_believed() {
    let [negotiate, challenge, reply, success1, success2] = decoded(LINUX_CONTROLLER);
    let parties = linux_parties();
    let secret = Secret::parse(HOST_SECRET).unwrap();
    let theirs = Secret::parse(CONTROLLER_SECRET).unwrap();
    let transaction = u16::from_le_bytes([negotiate[4], negotiate[5]]);
    let mut host = Host::new(&parties, &secret, Some(&theirs), transaction);
    assert_eq!(host.negotiate(), negotiate);
    let mut drawn = |out: &mut [u8]| match out.len() {
        4 => out.copy_from_slice(&reply[12..16]),
        _ => out.copy_from_slice(&reply[48..]),
    };
    match host.handle(&challenge, &mut drawn) {
        Answer::Reply(sent) => assert_eq!(sent, reply),
        other => panic!("{other:?}"),
    }
    match host.handle(&success1, &mut |_| {}) {
        Answer::Confirm(sent) => assert_eq!(sent, success2),
        other => panic!("{other:?}"),
    }
}
