//! Rude peers. They have a volume of their own, so whatever they write is not what hosts check.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::noise::{iscsi_pdu, nvme_pdu};
use longshore_tests::nvme::pdu::Pdu;
use longshore_tests::nvme::{Host, HostOptions};
use longshore_tests::random::Random;
use rustix::net::sockopt::set_socket_linger;

use super::configuration::{PLAYGROUND_NQN, PLAYGROUND_TARGET};
use super::tally::Deeds;

/// How long a peer listens to an answer that it does not need.
const HEAR: Duration = Duration::from_millis(5);

/// How long it waits when it is not let in.
const PAUSE: Duration = Duration::from_millis(20);

/// Connections of a flood that are open at a time.
const FLOOD: usize = 128;

/// Logins that stall at a time.
const STALLED: usize = 200;

/// PDUs of a session that has gone mad.
const PDUS: usize = 60;

/// Where the server listens, and until when peers are rude.
pub struct Peers<'a> {
    pub iscsi: SocketAddr,
    pub nvme: SocketAddr,
    pub stop: &'a AtomicBool,
}

impl Peers<'_> {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    fn either(&self, random: &mut Random) -> SocketAddr {
        match random.below(2) {
            0 => self.iscsi,
            _ => self.nvme,
        }
    }

    fn connect(&self, random: &mut Random) -> Option<TcpStream> {
        let address = self.either(random);
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1));
        if stream.is_err() {
            std::thread::sleep(PAUSE);
        }
        let stream = stream.ok()?;
        let _ = stream.set_read_timeout(Some(HEAR));
        let _ = stream.set_write_timeout(Some(Duration::from_millis(500)));
        Some(stream)
    }

    /// Random bytes, and PDUs that end in their middle, on new connections.
    pub fn garbage(&self, random: &mut Random) -> Deeds {
        let mut deeds = Deeds::default();
        while self.goes_on() {
            let Some(mut stream) = self.connect(random) else {
                continue;
            };
            let mut bytes = beginning(random);
            let is_half = random.below(2) == 0;
            if is_half {
                bytes.truncate(1 + index(random, bytes.len() - 1));
            } else {
                bytes.resize(1 + index(random, 4096), 0);
                random.fill(&mut bytes);
            }
            if stream.write_all(&bytes).is_ok() {
                let what = if is_half {
                    "half PDUs"
                } else {
                    "runs of random bytes"
                };
                deeds.add(what, 1);
            }
            let _ = stream.read(&mut [0; 512]);
            close_rudely(&stream, random);
        }
        deeds
    }

    /// Sessions and queues that begin well and go on with random PDUs.
    pub fn mad(&self, random: &mut Random) -> Deeds {
        let mut deeds = Deeds::default();
        while self.goes_on() {
            let sent = match random.below(2) {
                0 => self.mad_session(random),
                _ => self.mad_queue(random),
            };
            match sent {
                Ok(pdus) => {
                    deeds.add("sessions gone mad", 1);
                    deeds.add("random PDUs", pdus);
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
        deeds
    }

    fn mad_session(&self, random: &mut Random) -> std::io::Result<u64> {
        let login = Login {
            target: Some(PLAYGROUND_TARGET.to_owned()),
            header_digest: random.below(2) == 0,
            data_digest: random.below(2) == 0,
            ..Login::numbered(u16::try_from(random.below(1000)).expect("below 1000"))
        };
        let mut peer = Initiator::log_in(self.iscsi, &login)?;
        peer.stream()
            .set_write_timeout(Some(Duration::from_millis(500)))?;
        let mut sent = 0;
        for _ in 0..PDUS {
            let pdu = iscsi_pdu(random, &mut peer);
            if peer.send(&pdu).is_err() {
                break;
            }
            sent += 1;
        }
        let _ = peer.drain(HEAR);
        close_rudely(peer.stream(), random);
        Ok(sent)
    }

    fn mad_queue(&self, random: &mut Random) -> std::io::Result<u64> {
        let options = HostOptions {
            subsystem: PLAYGROUND_NQN.to_owned(),
            ..HostOptions::numbered(random.next().to_le_bytes()[0])
        };
        let mut host = Host::connect(self.nvme, &options)?;
        let queue = &mut host.queues[0];
        queue
            .stream()
            .set_write_timeout(Some(Duration::from_millis(500)))?;
        let mut sent = 0;
        for _ in 0..PDUS {
            if queue.send_bytes(&nvme_pdu(random).to_bytes()).is_err() {
                break;
            }
            sent += 1;
        }
        let _ = queue.is_closed_within(HEAR);
        close_rudely(queue.stream(), random);
        Ok(sent)
    }

    /// As many connections as can be made, which say nothing.
    pub fn flood(&self, random: &mut Random) -> Deeds {
        let mut deeds = Deeds::default();
        let mut open = Vec::new();
        while self.goes_on() {
            if let Some(stream) = self.connect(random) {
                deeds.add("connections of floods", 1);
                open.push(stream);
            }
            if open.len() == FLOOD {
                for stream in open.drain(..) {
                    close_rudely(&stream, random);
                }
            }
        }
        deeds
    }

    /// Logins, TLS handshakes and initializations that stop in their middle, with the connection open.
    pub fn stalled_logins(&self, random: &mut Random) -> Deeds {
        let mut deeds = Deeds::default();
        let mut open: Vec<Option<TcpStream>> =
            std::iter::repeat_with(|| None).take(STALLED).collect();
        while self.goes_on() {
            for place in &mut open {
                let is_open = place.as_ref().is_some_and(is_open);
                if is_open || !self.goes_on() {
                    continue;
                }
                *place = self.connect(random);
                let Some(stream) = place else {
                    continue;
                };
                let mut bytes = beginning(random);
                bytes.truncate(1 + index(random, bytes.len()));
                if stream.write_all(&bytes).is_ok() {
                    deeds.add("logins that stall", 1);
                }
            }
            std::thread::sleep(PAUSE);
        }
        deeds
    }

    /// Readers that do not read, and writers that announce data and do not send it.
    pub fn never_move(&self, random: &mut Random) -> Deeds {
        let mut deeds = Deeds::default();
        let mut open = Vec::new();
        while self.goes_on() {
            let number = u16::try_from(open.len()).expect("they are few") + 2000;
            let login = Login {
                target: Some(PLAYGROUND_TARGET.to_owned()),
                ..Login::numbered(number)
            };
            match Initiator::ready(self.iscsi, &login) {
                Ok(mut peer) => {
                    let _ = peer
                        .stream()
                        .set_write_timeout(Some(Duration::from_millis(100)));
                    let is_reader = random.below(2) == 0;
                    for _ in 0..64 {
                        let pdu = if is_reader {
                            peer.command_pdu(0, &cdb::read_16(0, 2048), Data::In(1 << 20))
                        } else {
                            // Without immediate data every byte must be asked for by R2T.
                            let cdb = cdb::write_16(0, 8192, false);
                            let write = peer.command_pdu(0, &cdb, Data::None);
                            write.set_byte(1, 0xa1).set_word(20, 4 << 20)
                        };
                        if peer.send(&pdu).is_err() {
                            break;
                        }
                    }
                    let what = if is_reader {
                        "readers that do not read"
                    } else {
                        "writers that do not write"
                    };
                    deeds.add(what, 1);
                    open.push(peer);
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
            if open.len() == 16 {
                std::thread::sleep(Duration::from_millis(500));
                open.clear();
            }
        }
        deeds
    }

    /// So many connections that stay open for a moment.
    pub fn crowd(&self, random: &mut Random, count: usize, stay: Duration) -> u64 {
        let open: Vec<_> = (0..count).filter_map(|_| self.connect(random)).collect();
        std::thread::sleep(stay);
        u64::try_from(open.len()).expect("they are few")
    }
}

/// Whether the peer has not closed it.
fn is_open(stream: &TcpStream) -> bool {
    let _ = stream.set_nonblocking(true);
    let mut byte = [0];
    let answer = stream.peek(&mut byte);
    let _ = stream.set_nonblocking(false);
    // Bytes that nobody takes are an answer; the peer is still there.
    answer.map_or_else(
        |error| error.kind() == std::io::ErrorKind::WouldBlock,
        |length| length > 0,
    )
}

/// The first bytes of a login, of a TLS handshake, or of an NVMe/TCP connection.
fn beginning(random: &mut Random) -> Vec<u8> {
    match random.below(3) {
        0 => Login::default().request().to_bytes(false, false),
        1 => Pdu::ic_req().to_bytes(),
        _ => {
            // A record with a ClientHello of 508 bytes.
            let mut bytes = vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
            bytes.resize(517, 0);
            random.fill(&mut bytes[11..]);
            bytes
        }
    }
}

/// By FIN, or by RST.
fn close_rudely(stream: &TcpStream, random: &mut Random) {
    if random.below(4) > 0 {
        // A socket that is gone needs no reset.
        let _ = set_socket_linger(stream, Some(Duration::ZERO));
    }
}

fn index(random: &mut Random, bound: usize) -> usize {
    let bound = u64::try_from(bound).expect("lengths fit 64 bits");
    usize::try_from(random.below(bound)).expect("below a length")
}
