use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::*;
use crate::{Client, PskStore, Server};

/// One direction of a stream, with a bounded buffer.
#[derive(Debug)]
struct Pipe {
    bytes: VecDeque<u8>,
    room: usize,
    is_closed: bool,
    /// All that ever went through.
    seen: Vec<u8>,
}

impl Pipe {
    fn new(room: usize) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            bytes: VecDeque::new(),
            room,
            is_closed: false,
            seen: Vec::new(),
        }))
    }
}

#[derive(Clone, Debug)]
struct End {
    from: Arc<Mutex<Pipe>>,
    to: Arc<Mutex<Pipe>>,
}

impl Read for End {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut pipe = self.from.lock().unwrap();
        if pipe.bytes.is_empty() && !pipe.is_closed {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        pipe.bytes.read(buffer)
    }
}

impl Write for End {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut pipe = self.to.lock().unwrap();
        let length = bytes.len().min(pipe.room - pipe.bytes.len());
        if length == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        pipe.bytes.extend(&bytes[..length]);
        pipe.seen.extend(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn ends(room: usize) -> (End, End) {
    let (up, down) = (Pipe::new(room), Pipe::new(room));
    let client = End {
        from: Arc::clone(&down),
        to: Arc::clone(&up),
    };
    (client, End { from: up, to: down })
}

struct Keys(Vec<Psk>);

impl PskStore for Keys {
    fn find(&self, identity: &[u8]) -> Option<Psk> {
        self.0
            .iter()
            .find(|psk| psk.identity() == identity)
            .cloned()
    }
}

fn psk(identity: &str, suite: Suite, byte: u8) -> Psk {
    Psk::new(identity.as_bytes(), suite, &vec![byte; suite.hash_length()]).unwrap()
}

struct Pair {
    client: Session<End>,
    server: Session<End>,
}

impl Pair {
    fn new(known: Vec<Psk>, offered: Psk, room: usize) -> Self {
        let (up, down) = ends(room);
        let server = Server::new(Arc::new(Keys(known))).unwrap();
        Self {
            client: Client::new().unwrap().connect(up, offered).unwrap(),
            server: server.accept(down).unwrap(),
        }
    }

    fn shake(&mut self) -> Result<(), (Option<TlsError>, Option<TlsError>)> {
        for _ in 0..10 {
            let outcomes = (self.client.handshake(), self.server.handshake());
            match outcomes {
                (Ok(Handshake::Done), Ok(Handshake::Done)) => return Ok(()),
                (Ok(_), Ok(_)) => {}
                (client, server) => {
                    // The other one reads the alert.
                    let client = client.and_then(|_| self.client.handshake());
                    return Err((client.err(), server.err()));
                }
            }
        }
        panic!("no end of it: {self:?}");
    }

    fn ready(suite: Suite, room: usize) -> Self {
        let mut pair = Self::new(vec![psk("a", suite, 1)], psk("a", suite, 1), room);
        pair.shake().unwrap();
        pair
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.client, self.server)
    }
}

fn pattern(length: usize) -> Vec<u8> {
    let bytes = (0..length).map(|at| u8::try_from(at % 251).unwrap());
    bytes.collect()
}

fn receive(session: &mut Session<End>, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let (one, other) = bytes.split_at_mut(most / 3);
    let length = session.receive(&mut [IoSliceMut::new(one), IoSliceMut::new(other)])?;
    bytes.truncate(length);
    Ok(bytes)
}

fn kind<T: fmt::Debug>(result: io::Result<T>) -> io::ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn both_suites_carry_bytes_both_ways() {
    for suite in Suite::ALL {
        let mut pair = Pair::ready(suite, 1 << 20);
        assert_eq!(pair.client.suite(), Some(suite));
        assert_eq!(pair.server.suite(), Some(suite));
        assert_eq!(pair.server.identity(), Some(&b"a"[..]));
        let data = pattern(100_000);
        for _ in 0..2 {
            let (one, other) = data.split_at(100);
            let slices = [IoSlice::new(one), IoSlice::new(&[]), IoSlice::new(other)];
            assert_eq!(pair.client.send(&slices).unwrap(), data.len());
            assert_eq!(receive(&mut pair.server, 1 << 17).unwrap(), data);
            assert_eq!(
                kind(receive(&mut pair.server, 10)),
                io::ErrorKind::WouldBlock
            );
            std::mem::swap(&mut pair.client, &mut pair.server);
        }
    }
}

#[test]
fn the_stream_shows_no_plaintext_and_no_key() {
    let mut pair = Pair::ready(Suite::Aes128GcmSha256, 1 << 20);
    let secret = b"nobody may read this";
    pair.client.send(&[IoSlice::new(secret)]).unwrap();
    let seen = pair.client.stream().to.lock().unwrap().seen.clone();
    for plain in [&secret[..], &[1; 32]] {
        assert!(!seen.windows(plain.len()).any(|window| window == plain));
    }
}

#[test]
fn the_suite_is_that_of_the_key_that_is_known() {
    let known = vec![
        psk("a", Suite::Aes256GcmSha384, 1),
        psk("b", Suite::Aes128GcmSha256, 2),
    ];
    for offered in known.clone() {
        let mut pair = Pair::new(known.clone(), offered.clone(), 1 << 20);
        pair.shake().unwrap();
        assert_eq!(pair.server.suite(), Some(offered.suite()));
        assert_eq!(pair.server.identity(), Some(offered.identity()));
    }
}

#[test]
fn a_wrong_key_and_an_unknown_identity_fail_alike() {
    for suite in Suite::ALL {
        let known = vec![psk("a", suite, 1)];
        let failures = [psk("a", suite, 2), psk("b", suite, 1)].map(|offered| {
            let mut pair = Pair::new(known.clone(), offered, 1 << 20);
            let (client, server) = pair.shake().unwrap_err();
            assert!(pair.server.identity().is_none() && pair.client.identity().is_none());
            let alert = pair.server.stream().to.lock().unwrap().seen.clone();
            (format!("{client:?}"), format!("{server:?}"), alert)
        });
        assert_eq!(failures[0], failures[1]);
        assert!(!failures[0].2.is_empty(), "no alert");
    }
}

#[test]
fn a_key_of_another_suite_than_the_offer_is_not_known() {
    let known = vec![psk("a", Suite::Aes256GcmSha384, 1)];
    let mut pair = Pair::new(known, psk("a", Suite::Aes128GcmSha256, 1), 1 << 20);
    pair.shake().unwrap_err();
}

#[test]
fn a_stream_without_room_takes_the_rest_later() {
    // Each record is larger than what the stream takes at once.
    let mut pair = Pair::ready(Suite::Aes128GcmSha256, 5_000);
    let data = pattern(300_000);
    let (mut sent, mut received, mut blocked) = (0, Vec::new(), 0);
    while received.len() < data.len() {
        let cut = (sent + 70_000).min(data.len());
        match pair
            .client
            .send(&[IoSlice::new(&data[sent..cut]), IoSlice::new(&data[cut..])])
        {
            Ok(length) => sent += length,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                blocked += 1;
            }
        }
        assert!(sent < data.len() || !pair.client.has_unsent());
        match receive(&mut pair.server, 1 << 16) {
            Ok(bytes) => received.extend(bytes),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
    assert!(received == data && sent == data.len() && blocked > 10);
}

#[test]
fn keys_are_renewed_before_they_wear_out() {
    let mut pair = Pair::ready(Suite::Aes256GcmSha384, 1 << 20);
    pair.client.records_per_key = 3;
    for round in 0..20_u8 {
        pair.client.send(&[IoSlice::new(&[round; 50])]).unwrap();
        assert_eq!(receive(&mut pair.server, 100).unwrap(), [round; 50]);
        pair.server.send(&[IoSlice::new(&[round])]).unwrap();
        assert_eq!(receive(&mut pair.client, 100).unwrap(), [round]);
    }
}

/// Each is a record, and OpenSSL works them off within one call.
#[test]
fn a_peer_that_sends_new_keys_and_no_data_is_cut() {
    let mut pair = Pair::ready(Suite::Aes128GcmSha256, 1 << 20);
    let mut flood = |count: usize| {
        for _ in 0..count {
            ffi::update_key(&mut pair.client.stream).unwrap();
            pair.client.stream.do_handshake().unwrap();
        }
        assert!(pair.client.stream.get_mut().send().unwrap());
        let outcome = receive(&mut pair.server, 100);
        (
            outcome,
            pair.server.stream().from.lock().unwrap().bytes.len(),
        )
    };
    // As many as anybody needs.
    assert_eq!(kind(flood(1000).0), io::ErrorKind::WouldBlock);
    let (outcome, left) = flood(20_000);
    assert_eq!(kind(outcome), io::ErrorKind::Other);
    assert!(left > 300_000, "{left}");
}

#[test]
fn new_keys_between_data_are_no_matter() {
    let mut pair = Pair::ready(Suite::Aes128GcmSha256, 1 << 20);
    for round in 0..10_u8 {
        for _ in 0..1000 {
            ffi::update_key(&mut pair.client.stream).unwrap();
            pair.client.stream.do_handshake().unwrap();
        }
        pair.client.send(&[IoSlice::new(&[round])]).unwrap();
        assert_eq!(receive(&mut pair.server, 100).unwrap(), [round]);
    }
}

#[test]
fn errors_that_others_leave_on_the_thread_are_not_ours() {
    let mut pair = Pair::ready(Suite::Aes128GcmSha256, 1 << 20);
    let leave_error = || {
        let stack = openssl::pkey::PKey::private_key_from_pem(b"no key").unwrap_err();
        stack.put();
    };
    for _ in 0..2 {
        leave_error();
        assert_eq!(
            kind(receive(&mut pair.server, 100)),
            io::ErrorKind::WouldBlock
        );
        leave_error();
        pair.client.send(&[IoSlice::new(b"all")]).unwrap();
        leave_error();
        assert_eq!(receive(&mut pair.server, 100).unwrap(), b"all");
    }
    let mut pair = Pair::new(
        vec![psk("a", Suite::Aes128GcmSha256, 1)],
        psk("a", Suite::Aes128GcmSha256, 1),
        1 << 20,
    );
    leave_error();
    assert_eq!(pair.client.handshake().unwrap(), Handshake::Waiting);
    leave_error();
    assert_eq!(pair.server.handshake().unwrap(), Handshake::Waiting);
}

#[test]
fn a_read_that_a_signal_interrupts_is_tried_again() {
    struct Interrupted(bool, End);
    impl Read for Interrupted {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 = !self.0;
            match self.0 {
                true => Err(io::ErrorKind::Interrupted.into()),
                false => self.1.read(buffer),
            }
        }
    }
    impl Write for Interrupted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (up, down) = ends(1 << 20);
    let key = psk("a", Suite::Aes128GcmSha256, 1);
    let server = Server::new(Arc::new(Keys(vec![key.clone()]))).unwrap();
    let mut server = server.accept(Interrupted(false, down)).unwrap();
    let mut client = Client::new().unwrap().connect(up, key).unwrap();
    client.handshake().unwrap();
    assert_eq!(server.handshake().unwrap(), Handshake::Waiting);
    assert_eq!(client.handshake().unwrap(), Handshake::Done);
    assert_eq!(server.handshake().unwrap(), Handshake::Done);
}

#[test]
fn a_session_says_goodbye_once() {
    let mut pair = Pair::ready(Suite::Aes128GcmSha256, 1 << 20);
    let sent = |pair: &Pair| pair.client.stream().to.lock().unwrap().seen.len();
    let before = sent(&pair);
    pair.client.close().unwrap();
    let after = sent(&pair);
    assert!(after > before);
    pair.client.close().unwrap();
    assert_eq!(sent(&pair), after);
    assert_eq!(receive(&mut pair.server, 4).unwrap(), b"");
    // Before the handshake there is nothing to say.
    let (up, _down) = ends(1 << 20);
    let key = psk("a", Suite::Aes128GcmSha256, 1);
    let mut early = Client::new().unwrap().connect(up, key).unwrap();
    early.close().unwrap();
    assert_eq!(early.handshake().unwrap(), Handshake::Waiting);
}

#[test]
fn a_changed_record_ends_the_connection() {
    let mut pair = Pair::ready(Suite::Aes128GcmSha256, 1 << 20);
    pair.client.send(&[IoSlice::new(&[1; 100])]).unwrap();
    pair.server.stream().from.lock().unwrap().bytes[50] ^= 1;
    for _ in 0..2 {
        assert_eq!(
            kind(receive(&mut pair.server, 100)),
            io::ErrorKind::InvalidData
        );
    }
    assert_eq!(
        kind(receive(&mut pair.client, 100)),
        io::ErrorKind::InvalidData
    );
}

#[test]
fn an_end_is_told_with_and_without_a_farewell() {
    for says_so in [true, false] {
        let mut pair = Pair::ready(Suite::Aes128GcmSha256, 1 << 20);
        pair.client.send(&[IoSlice::new(b"last")]).unwrap();
        if says_so {
            pair.client.close().unwrap();
        } else {
            pair.server.stream().from.lock().unwrap().is_closed = true;
        }
        assert_eq!(receive(&mut pair.server, 4).unwrap(), b"last");
        for _ in 0..2 {
            assert_eq!(receive(&mut pair.server, 4).unwrap(), b"");
        }
        assert!(pair.server.has_more());
        // The other direction is open still.
        pair.server.send(&[IoSlice::new(b"more")]).unwrap();
        assert_eq!(receive(&mut pair.client, 4).unwrap(), b"more");
    }
}

#[test]
fn what_is_no_tls_is_refused() {
    let (mut up, down) = ends(1 << 20);
    let server = Server::new(Arc::new(Keys(Vec::new()))).unwrap();
    let mut session = server.accept(down).unwrap();
    up.write_all(&[0; 128]).unwrap();
    assert!(matches!(session.handshake(), Err(TlsError::Failed(_))));
    let (up, down) = ends(1 << 20);
    let mut session = server.accept(down).unwrap();
    assert_eq!(session.handshake().unwrap(), Handshake::Waiting);
    up.to.lock().unwrap().is_closed = true;
    assert!(matches!(
        session.handshake(),
        Err(TlsError::Closed | TlsError::Failed(_))
    ));
}

#[test]
fn a_server_with_a_certificate_has_proved_nothing() {
    use openssl::asn1::Asn1Time;
    use openssl::ec::{EcGroup, EcKey};
    use openssl::hash::MessageDigest;
    use openssl::nid::Nid;
    use openssl::pkey::PKey;
    use openssl::ssl::{SslContext, SslMethod};
    use openssl::x509::X509;
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let mut certificate = X509::builder().unwrap();
    certificate.set_pubkey(&key).unwrap();
    let (from, until) = (Asn1Time::days_from_now(0), Asn1Time::days_from_now(1));
    certificate.set_not_before(&from.unwrap()).unwrap();
    certificate.set_not_after(&until.unwrap()).unwrap();
    certificate.sign(&key, MessageDigest::sha256()).unwrap();
    let mut context = SslContext::builder(SslMethod::tls()).unwrap();
    context.set_certificate(&certificate.build()).unwrap();
    context.set_private_key(&key).unwrap();
    let (up, down) = ends(1 << 20);
    let offered = psk("a", Suite::Aes128GcmSha256, 1);
    let mut client = Client::new().unwrap().connect(up, offered).unwrap();
    let mut server = SslStream::new(Ssl::new(&context.build()).unwrap(), down).unwrap();
    assert_eq!(client.handshake().unwrap(), Handshake::Waiting);
    server.accept().unwrap_err();
    client.handshake().unwrap_err();
    assert!(client.identity().is_none());
}

#[test]
fn a_key_is_neither_printed_nor_of_another_length() {
    let psk = psk("a", Suite::Aes128GcmSha256, 0xab);
    let text = format!("{psk:?}");
    assert!(text.contains("***") && !text.contains("171"), "{text}");
    for length in [0, 31, 33, 48] {
        assert!(Psk::new(b"a", Suite::Aes128GcmSha256, &vec![0; length]).is_err());
    }
    assert!(Psk::new(b"", Suite::Aes128GcmSha256, &[0; 32]).is_err());
}
