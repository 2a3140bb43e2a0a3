//! Records of a session beside those of OpenSSL by itself: processor time of one thread that encrypts and decrypts.
//!
//! `speed` prints a table. `speed session|openssl SIZE ROUNDS` does one of both, to be counted by Valgrind.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::rc::Rc;
use std::sync::Arc;

use longshore_tls::{Client, Handshake, Psk, PskStore, Server, Session, Suite};
use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::ssl::{Ssl, SslContext, SslMethod, SslStream};
use openssl::x509::X509;
use rustix::time::{ClockId, clock_gettime};

/// A record of TLS.
const RECORD: usize = 16 << 10;
/// Responses of 4 KiB that leave in one turn.
const DEPTH: usize = 32;
/// Header of a PDU before its data.
const HEADER: usize = 24;

/// One direction in memory.
#[derive(Clone, Default)]
struct Pipe(Rc<RefCell<(Vec<u8>, usize)>>);

struct End {
    from: Pipe,
    to: Pipe,
}

impl Read for End {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (bytes, start) = &mut *self.from.0.borrow_mut();
        let rest = &bytes[*start..];
        if rest.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        *start += length;
        if *start == bytes.len() {
            bytes.clear();
            *start = 0;
        }
        Ok(length)
    }
}

impl Write for End {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.0.borrow_mut().0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn ends() -> (End, End) {
    let (up, down) = (Pipe::default(), Pipe::default());
    let client = End {
        from: down.clone(),
        to: up.clone(),
    };
    (client, End { from: up, to: down })
}

struct OneKey(Psk);

impl PskStore for OneKey {
    fn find(&self, identity: &[u8]) -> Option<Psk> {
        (self.0.identity() == identity).then(|| self.0.clone())
    }
}

/// What is measured: `size` bytes of data at a time.
trait Side {
    fn exchange(&mut self, pieces: &[Vec<u8>], room: &mut [u8]);
}

struct Ours(Session<End>, Session<End>);

impl Ours {
    fn new(suite: Suite) -> Self {
        let psk = Psk::new(b"a", suite, &vec![1; suite.hash_length()]).expect("a key");
        let (up, down) = ends();
        let server = Server::new(Arc::new(OneKey(psk.clone()))).expect("OpenSSL");
        let mut server = server.accept(down).expect("a server");
        let client = Client::new().expect("OpenSSL");
        let mut client = client.connect(up, psk).expect("a client");
        let mut shake = || {
            let outcome = (client.handshake(), server.handshake());
            matches!(outcome, (Ok(Handshake::Done), Ok(Handshake::Done)))
        };
        while !shake() {}
        Self(client, server)
    }
}

impl Side for Ours {
    fn exchange(&mut self, pieces: &[Vec<u8>], room: &mut [u8]) {
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let total: usize = pieces.iter().map(Vec::len).sum();
        assert_eq!(self.0.send(&slices).expect("memory"), total);
        let mut received = 0;
        while received < total {
            let mut places = [IoSliceMut::new(room)];
            received += self.1.receive(&mut places).expect("memory");
        }
    }
}

struct OpenSsl(SslStream<End>, SslStream<End>);

impl OpenSsl {
    fn new(suite: Suite) -> Result<Self, Box<dyn std::error::Error>> {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
        let key = PKey::from_ec_key(EcKey::generate(&group)?)?;
        let mut certificate = X509::builder()?;
        certificate.set_pubkey(&key)?;
        certificate.set_not_before(&*Asn1Time::days_from_now(0)?)?;
        certificate.set_not_after(&*Asn1Time::days_from_now(1)?)?;
        certificate.sign(&key, MessageDigest::sha256())?;
        let mut context = SslContext::builder(SslMethod::tls())?;
        context.set_ciphersuites(suite.name())?;
        context.set_certificate(&certificate.build())?;
        context.set_private_key(&key)?;
        context.set_num_tickets(0)?;
        let context = context.build();
        let (up, down) = ends();
        let mut client = SslStream::new(Ssl::new(&context)?, up)?;
        let mut server = SslStream::new(Ssl::new(&context)?, down)?;
        loop {
            let outcome = (client.connect(), server.accept());
            if let (Ok(()), Ok(())) = outcome {
                return Ok(Self(client, server));
            }
        }
    }
}

impl Side for OpenSsl {
    fn exchange(&mut self, pieces: &[Vec<u8>], room: &mut [u8]) {
        for piece in pieces {
            for record in piece.chunks(RECORD) {
                assert_eq!(self.0.ssl_write(record).expect("memory"), record.len());
            }
        }
        let mut rest: usize = pieces.iter().map(Vec::len).sum();
        while rest > 0 {
            rest -= self.1.ssl_read(room).expect("memory");
        }
    }
}

fn pieces(size: usize) -> Vec<Vec<u8>> {
    match size {
        4096 => vec![vec![7; HEADER + size]; DEPTH],
        _ => vec![vec![7; HEADER], vec![7; size]],
    }
}

fn run(side: &mut dyn Side, size: usize, rounds: usize) {
    let pieces = pieces(size);
    let mut room = vec![0; 256 << 10];
    for _ in 0..rounds {
        side.exchange(&pieces, &mut room);
    }
}

fn time_of(side: &mut dyn Side, size: usize, rounds: usize) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        #[allow(clippy::cast_precision_loss)] // Of a process that runs for minutes.
        let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
        seconds
    };
    let start = now();
    run(side, size, rounds);
    now() - start
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [kind, size, rounds] = &arguments[..] {
        let suite = Suite::Aes128GcmSha256;
        let mut side: Box<dyn Side> = match kind.as_str() {
            "session" => Box::new(Ours::new(suite)),
            _ => Box::new(OpenSsl::new(suite)?),
        };
        run(&mut *side, size.parse()?, rounds.parse()?);
        return Ok(());
    }
    println!(
        "| suite | data | OpenSSL, GB/s | session, GB/s | session/OpenSSL |\n|---|---|---|---|---|"
    );
    for suite in Suite::ALL {
        for (size, name) in [(4096, "32 × 4 KiB"), (65_536, "64 KiB")] {
            let (mut theirs, mut ours) = (OpenSsl::new(suite)?, Ours::new(suite));
            let bytes: usize = pieces(size).iter().map(Vec::len).sum();
            let rounds = (64 << 20) / bytes;
            // By turns: what the machine does to both falls out.
            let mut ratios: Vec<[f64; 3]> = (0..21)
                .map(|_| {
                    let one = time_of(&mut theirs, size, rounds);
                    let other = time_of(&mut ours, size, rounds);
                    #[allow(clippy::cast_precision_loss)] // Some megabytes.
                    let gigabytes = (bytes * rounds) as f64 / 1e9;
                    [one / other, gigabytes / one, gigabytes / other]
                })
                .collect();
            ratios.sort_by(|one, other| one[0].total_cmp(&other[0]));
            let [ratio, one, other] = ratios[ratios.len() / 2];
            let (least, most) = (ratios[2][0], ratios[ratios.len() - 3][0]);
            println!(
                "| {} | {name} | {one:.2} | {other:.2} | {ratio:.2} ({least:.2} to {most:.2}) |",
                suite.name()
            );
        }
    }
    Ok(())
}
