//! What no sequence of requests may do.

use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_sequence_of_requests_panics_or_gets_past_chap(
        requests in prop::collection::vec(
            (
                any::<bool>(),
                any::<bool>(),
                0_u8..4,
                0_u8..4,
                prop::collection::vec(
                    prop::sample::select(vec![
                        "InitiatorName=iqn.1999-07.com.os:hostid.77",
                        "TargetName=iqn.1999-07.com.example:diskarray.sn.88",
                        "SessionType=Normal",
                        "SessionType=Discovery",
                        "AuthMethod=CHAP,None",
                        "AuthMethod=None",
                        "CHAP_A=5,7",
                        "CHAP_N=alice",
                        "CHAP_R=0x00112233445566778899aabbccddeeff",
                        "CHAP_I=1",
                        "CHAP_C=0x00",
                        "MaxBurstLength=0",
                        "HeaderDigest=CRC32C",
                        "FirstBurstLength=x",
                        "Junk",
                    ]),
                    0..5,
                ),
            ),
            0..8,
        ),
    ) {
        let mut talk = Talk::demanding(Authentication::chap_required(chap(true)));
        talk.directory.discovery_authentication = Authentication::chap_required(chap(true));
        for (transit, continues, from, to, pairs) in requests {
            let mut data = pairs.join("\0").into_bytes();
            data.push(0);
            let request = LoginRequest {
                transit,
                continues,
                current_stage: Stage::from_bits(from),
                next_stage: Stage::from_bits(to),
                ..talk.header
            };
            talk.login.handle(&request, &data, &mut talk.directory);
        }
        prop_assert!(talk.directory.established.is_empty());
    }
}
