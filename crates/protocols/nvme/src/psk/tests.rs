//! Vectors of libnvme and of the Linux kernel, and texts that are wrong.

use proptest::prelude::*;
use zeroize::Zeroizing;

use super::*;
use crate::auth::{Hash, generated_psk};
use crate::nqn::Nqn;

/// Those of libnvme's `test/psk.c`.
const K1: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
const K2: &str =
    "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:";

fn names() -> (Nqn, Nqn) {
    // Not dated, as names should be; vectors have them.
    let name = |text: &str| {
        let mut field = [0; 256];
        field[..text.len()].copy_from_slice(text.as_bytes());
        Nqn::from_field(&field).unwrap()
    };
    (name("nqn.psk-test-host"), name("nqn.psk-test-subsys"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn keys_are_those_of_libnvme() {
    use Derivation::{Compat, Standard};
    use Version::{V0, V1};
    let rows = [
        (
            K1,
            V0,
            Standard,
            "",
            "05c6503551ad136e6ee32e6eeb3f6d500b69701d84ec71e328f65c7f51566f68",
        ),
        (
            K1,
            V0,
            Compat,
            "",
            "09fb1983ac6d6d0353e7cae4f23daddd651c367fa347c59d9cf6936f5a83eafb",
        ),
        (
            K2,
            V0,
            Standard,
            "",
            "f42ba63824cdfe421914c582921f85b5b5b7e2d4df084caeedc9be20b212e8bb0fe8a23e9d59a1c8fc6449da4970a78d",
        ),
        (
            K1,
            V1,
            Standard,
            "iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=",
            "8fc3c0badfd4c0c66fa3ca33aadd0314f85536cc9bc47338b60f3e6e563786ca",
        ),
        (
            K1,
            V1,
            Compat,
            "66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM=",
            "b9f5ab2a41ba6e72a23a12066302a2f775fa6c0942c8e0b18ca8ac07edf305e2",
        ),
        (
            K2,
            V1,
            Standard,
            "QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a",
            "a2b2f943f479fc682555cec89857c80ed004ce92f32a973d5764155bb7e36b17a85368a0666d250afac9282dda2e62ca",
        ),
        (
            K2,
            V1,
            Compat,
            "RsKmYJ3nAn1ApjjMloJFbAkLPivONDAX/xW327YBUsn2eGShXSjCZvBaOxscLqmz",
            "fcefe2e2a2e682b1447dcabf1ec268f78f08c63cd075753abcc8bda2c5c34d48d3014aa8d76ad80107e4f5c9f27e2149",
        ),
    ];
    let (host, subsystem) = names();
    for (key, version, derivation, digest, psk) in rows {
        let key = ConfiguredKey::parse(key).unwrap();
        let retained = key.retained(&host, derivation);
        let found = retained
            .tls_psk(&host, &subsystem, version, Origin::Configured)
            .unwrap();
        let row = format!("{version:?} {derivation:?} {:?}", key.suite());
        assert_eq!(found.identity.digest, digest, "{row}");
        assert_eq!(hex(found.key()), psk, "{row}");
    }
}

/// `drivers/nvme/common/tests/auth_kunit.c`: beginnings and ends of the keys, and the whole digests.
#[test]
fn generated_keys_are_those_of_the_linux_kernel() {
    let rows = [
        (
            Hash::Sha256,
            "1733c59f",
            "OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=",
            "3c17da62",
            "7cc8",
        ),
        (
            Hash::Sha384,
            "f14b2dd3",
            "cffMWk8TSS7HOQebjgYEIkrPrjWPV4JE5cdPB8WhEvY4JBW5YynKyv66XscN4A9n",
            "27747532",
            "7590",
        ),
    ];
    let name = |text: &str| {
        let mut field = [0; 256];
        field[..text.len()].copy_from_slice(text.as_bytes());
        Nqn::from_field(&field).unwrap()
    };
    let (host, subsystem) = (name("hostnqn"), name("subsysnqn"));
    for (hash, psk, digest, begin, end) in rows {
        let counted = |from: u8| (from..).take(hash.length()).collect::<Vec<u8>>();
        let second: Vec<u8> = counted(0).iter().map(|byte| !byte).collect();
        let generated = generated_psk(hash, &counted(b'A'), &counted(0), &second).unwrap();
        assert!(hex(&generated).starts_with(psk));
        let retained = RetainedPsk::generated(generated).unwrap();
        let found = retained
            .tls_psk(&host, &subsystem, Version::V1, Origin::Generated)
            .unwrap();
        let key = hex(found.key());
        assert_eq!(found.identity.digest, digest);
        assert!(key.starts_with(begin) && key.ends_with(end), "{key}");
        let text = found.identity.to_string();
        assert!(
            text.starts_with(&format!("NVMe1G{:02} ", hash.id())),
            "{text}"
        );
    }
    assert!(RetainedPsk::generated(Zeroizing::new(vec![0; 64])).is_none());
}

#[test]
fn a_key_is_read_and_written_and_not_shown() {
    for text in [K1, K2, &K1.replace(":01:", ":00:")] {
        let key = ConfiguredKey::parse(text).unwrap();
        assert_eq!(key.to_text().as_str(), text);
        assert_eq!(format!("{key:?}"), "***");
    }
    for hash in [None, Some(PskHash::Sha256), Some(PskHash::Sha384)] {
        let key = ConfiguredKey::generate(hash, &mut |bytes| bytes.fill(0x5a));
        assert_eq!(ConfiguredKey::parse(&key.to_text()), Ok(key));
    }
}

#[test]
fn what_is_wrong_with_a_key_is_said() {
    use ConfiguredKeyError::{Base64, Checksum, Form, Hash, Length, LengthOfHash};
    for (text, error) in [
        (String::new(), Form),
        (K1[..K1.len() - 1].to_owned(), Form),
        (K1.replace("NVMeTLSkey-1", "DHHC-1"), Form),
        (K1.replace(":01:", ":1:"), Form),
        (format!("NVMeTLSkey-1:01:{}:", "A".repeat(200)), Form),
        (K1.replace(":01:", ":03:"), Hash(3)),
        (K1.replace("VRL", "V-L"), Base64),
        (K1.replace("VRL", "WRL"), Checksum),
        (format!("NVMeTLSkey-1:01:{}:", &K1[16..56]), Length(26)),
        (
            K1.replace(":01:", ":02:"),
            LengthOfHash { hash: 2, bytes: 32 },
        ),
    ] {
        assert_eq!(ConfiguredKey::parse(&text), Err(error), "{text}");
    }
}

#[test]
fn a_key_without_a_hash_is_the_retained_one() {
    let (host, subsystem) = names();
    let key = ConfiguredKey::parse(&K1.replace(":01:", ":00:")).unwrap();
    let psk = |derivation| {
        key.retained(&host, derivation)
            .tls_psk(&host, &subsystem, Version::V1, Origin::Configured)
            .unwrap()
    };
    let [standard, compat] = Derivation::ALL.map(psk);
    assert_eq!(standard.identity, compat.identity);
    assert_ne!(standard.key(), compat.key());
}

#[test]
fn an_identity_is_read_and_written() {
    let host = Nqn::new("nqn.2026-11.test:host").unwrap();
    let subsystem = Nqn::new("nqn.2026-11.test:disks").unwrap();
    for text in [K1, K2] {
        let retained = ConfiguredKey::parse(text)
            .unwrap()
            .retained(&host, Derivation::Standard);
        for (version, origin) in [
            (Version::V0, Origin::Configured),
            (Version::V1, Origin::Configured),
            (Version::V1, Origin::Generated),
        ] {
            let psk = retained
                .tls_psk(&host, &subsystem, version, origin)
                .unwrap();
            let text = psk.identity.to_string();
            assert!(text.len() <= IDENTITY_LENGTH_MAX);
            assert_eq!(Identity::parse(text.as_bytes()), Ok(psk.identity.clone()));
            assert_eq!(format!("{psk:?}"), format!("{text}: ***"));
        }
    }
}

#[test]
fn what_is_wrong_with_an_identity_is_said() {
    let digest = "iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=";
    let good = format!("NVMe1R01 nqn.2026-11.test:h nqn.2026-11.test:s {digest}");
    assert!(Identity::parse(good.as_bytes()).is_ok());
    let long = "x".repeat(150);
    for (text, error) in [
        (String::new(), IdentityError::Form),
        (good.replace("NVMe1R", "NVMe2R"), IdentityError::Form),
        (good.replace("NVMe1R", "NVMe0G"), IdentityError::Form),
        (format!("{good} more"), IdentityError::Form),
        (format!("{good}{}", "A".repeat(600)), IdentityError::Form),
        (good.replace("R01", "R03"), IdentityError::Hash("03".into())),
        (good.replace("R01", "R1"), IdentityError::Hash("1".into())),
        (good.replace("R01", "R02"), IdentityError::Digest),
        (good.replace("NVMe1R", "NVMe0R"), IdentityError::Digest),
        (
            format!("NVMe0R01 nqn.2026-11.test:{long} nqn.2026-11.test:{long}"),
            IdentityError::TooLong,
        ),
    ] {
        assert_eq!(Identity::parse(text.as_bytes()), Err(error), "{text}");
    }
    let unnamed = good.replace("nqn.2026-11.test:h", "host");
    assert!(matches!(
        Identity::parse(unnamed.as_bytes()),
        Err(IdentityError::Name(_))
    ));
}

proptest! {
    #[test]
    fn no_bytes_end_the_readers(bytes in prop::collection::vec(any::<u8>(), 0..600), cut in 0usize..100) {
        let _ = Identity::parse(&bytes);
        let text = String::from_utf8_lossy(&bytes);
        let _ = ConfiguredKey::parse(&text);
        let _ = ConfiguredKey::parse(&format!("NVMeTLSkey-1:01:{text}:"));
        let cut = cut.min(K1.len());
        let _ = ConfiguredKey::parse(&format!("{}{text}", &K1[..cut]));
    }
}
