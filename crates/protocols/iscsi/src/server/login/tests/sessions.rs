//! Logins to sessions that exist, or should.

use super::*;

#[test]
fn a_tsih_without_session_is_refused_at_once() {
    let mut talk = Talk::new();
    talk.header.tsih = Tsih(7);
    let heard = talk.say(SECURITY, None, &names());
    assert_eq!(heard.refused(), LoginStatus::SESSION_DOES_NOT_EXIST);
    assert_eq!(heard.response.tsih, Tsih(7));
}

#[test]
fn a_continued_session_keeps_its_values_and_the_connection_gets_new_ones() {
    let mut talk = Talk::new();
    talk.header.tsih = Tsih(7);
    let session = OperationalParameters {
        header_digest: Digest::Crc32c,
        max_burst_length: 4096,
        first_burst_length: 1024,
        initiator_max_recv_data_segment_length: 1024,
        ..OperationalParameters::default()
    };
    talk.directory.existing = Some((Tsih(7), session));
    let text = format!("{} MaxBurstLength=65536 DataDigest=CRC32C", names());
    let heard = talk.say(OPERATIONAL, Some(FULL), &text);
    assert_eq!(heard.value("MaxBurstLength"), "Reject");
    assert_eq!(heard.response.tsih, Tsih(7));
    let session = heard.finished();
    assert!(session.continues_session);
    assert_eq!(session.operational.max_burst_length, 4096);
    assert_eq!(session.operational.header_digest, Digest::None);
    assert_eq!(session.operational.data_digest, Digest::Crc32c);
    assert_eq!(
        session.operational.initiator_max_recv_data_segment_length,
        8192
    );
    assert_eq!(
        session.operational.target_max_recv_data_segment_length,
        262_144
    );
}
