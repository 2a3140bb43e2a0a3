//! Rude things to do with one PDU on its way to the client.

use longshore_nvme::pdu::{FatalError, FatalErrorStatus, TermReq, Terminator};
use longshore_tests::pdu::{BHS_LENGTH, Pdu, opcode};
use longshore_tests::proxy::Protocol;
use longshore_tests::proxy::framing::{Digests, Framing};
use longshore_tests::random::Random;
use longshore_tests::relay::{Passed, Tamper};

/// See the module documentation. Each is done to one PDU; later ones pass unchanged unless stated
/// otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// It never comes, and nothing after it.
    Silence,
    /// The connection ends in its place.
    Close,
    /// Half of it comes, and nothing after that.
    HalfAndSilence,
    /// Half of it comes, and the connection ends.
    HalfAndClose,
    /// It is left out.
    LeaveOut,
    /// The PDU comes twice.
    Twice,
    /// It comes without end.
    Endless,
    /// It is of another type. The number: which.
    Type(u8),
    /// Its flags are others.
    Flags(u8),
    /// The length of the PDU lies.
    Length(Lie),
    /// It answers a command that was never sent.
    Tag,
    /// Numbers or offsets behind the tag are others: bytes 24 to 48 of a header, as far as it goes.
    Numbers(u8),
    /// A failed status, whatever it was.
    Status(u8),
    /// All bytes of its data are this.
    Fill(u8),
    /// Its last byte is another: of a digest, where there is one.
    LastByte,
    /// As many bytes of noise.
    Noise,
    /// The server ends the connection by the protocol's own means: C2HTermReq; Async Message, and Reject.
    Terminate,
    /// An answer that was not asked for comes before it. The number: which.
    Unasked(u8),
}

/// How a length lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    Zero,
    Less,
    More,
    Huge,
}

/// Every act there is, for a protocol.
pub fn all(protocol: Protocol) -> Vec<Act> {
    let mut acts = vec![
        Act::Silence,
        Act::Close,
        Act::HalfAndSilence,
        Act::HalfAndClose,
        Act::LeaveOut,
        Act::Twice,
        Act::Endless,
        Act::Tag,
        Act::LastByte,
        Act::Noise,
        Act::Terminate,
    ];
    acts.extend([Lie::Zero, Lie::Less, Lie::More, Lie::Huge].map(Act::Length));
    acts.extend([0x00, 0x20, 0x80, 0xff].map(Act::Flags));
    acts.extend([0, 1, 2, 3, 4, 5].map(Act::Numbers));
    acts.extend([0x02, 0x08, 0x28, 0xff].map(Act::Status));
    acts.extend([0x00, 0x01, 0x7f, 0xff].map(Act::Fill));
    let types: &[u8] = match protocol {
        Protocol::Iscsi => &[
            0x00, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3e, 0x3f,
        ],
        Protocol::NvmeTcp => &[0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x07, 0x09, 0xff],
    };
    acts.extend(types.iter().copied().map(Act::Type));
    acts.extend(types.iter().copied().map(Act::Unasked));
    acts
}

impl Act {
    /// Whether the client can only find out by waiting, so that a run of it takes as long as a time-out.
    pub fn takes_patience(self) -> bool {
        matches!(
            self,
            Self::Silence
                | Self::HalfAndSilence
                | Self::LeaveOut
                | Self::Length(Lie::More | Lie::Huge)
        )
    }

    fn apply(self, protocol: Protocol, pdu: &[u8], random: &mut Random) -> Passed {
        let mut pdu = pdu.to_vec();
        let header = header_length(protocol, &pdu);
        match self {
            Self::Silence => return Passed::Silence(Vec::new()),
            Self::Close => return Passed::Last(Vec::new()),
            Self::HalfAndSilence => return Passed::Silence(pdu[..pdu.len() / 2].to_vec()),
            Self::HalfAndClose => return Passed::Last(pdu[..pdu.len() / 2].to_vec()),
            Self::LeaveOut => pdu.clear(),
            Self::Twice => pdu.extend_from_within(..),
            Self::Endless => {
                // Of a text or login, the answer goes on.
                if protocol == Protocol::Iscsi && matches!(pdu[0], 0x23 | 0x24) {
                    pdu[1] = pdu[1] & 0x3f | 0x40;
                }
                let times = (8 << 20) / pdu.len();
                return Passed::Repeated(pdu, times);
            }
            Self::Type(code) => pdu[0] = code,
            Self::Flags(flags) => pdu[1] = flags,
            Self::Length(lie) => lie.tell(protocol, &mut pdu),
            Self::Tag => match protocol {
                Protocol::Iscsi => pdu[16..20].copy_from_slice(&[0, 0x77, 0, 3]),
                Protocol::NvmeTcp => {
                    let at = if pdu[0] == 0x05 { 20 } else { 8 };
                    xor(&mut pdu, at, 0x5a);
                }
            },
            Self::Numbers(word) => {
                let first = match protocol {
                    Protocol::Iscsi => 24,
                    Protocol::NvmeTcp => 8,
                };
                for at in 0..4 {
                    let value = [0xff, 0x7f, 0x01][usize::from(word) % 3];
                    xor(&mut pdu, first + usize::from(word) * 4 + at, value);
                }
            }
            Self::Status(status) => match protocol {
                Protocol::Iscsi => pdu[3] = status,
                Protocol::NvmeTcp if pdu.len() >= 24 => pdu[22] = status << 1,
                Protocol::NvmeTcp => {}
            },
            Self::Fill(byte) => pdu[header..].fill(byte),
            Self::LastByte => {
                let last = pdu.len() - 1;
                xor(&mut pdu, last, 0x10);
            }
            Self::Noise => random.fill(&mut pdu),
            Self::Terminate => {
                pdu = match protocol {
                    Protocol::NvmeTcp => termination(),
                    Protocol::Iscsi => [unasked(protocol, 0x32), unasked(protocol, 0x3f)].concat(),
                }
            }
            Self::Unasked(code) => {
                pdu.splice(..0, unasked(protocol, code));
            }
        }
        Passed::On(pdu)
    }
}

impl Lie {
    fn tell(self, protocol: Protocol, pdu: &mut [u8]) {
        // PLEN; in iSCSI TotalAHSLength and, in three bytes, DataSegmentLength.
        let field = &mut pdu[4..8];
        let mut bytes = <[u8; 4]>::try_from(&*field).expect("four bytes");
        if protocol == Protocol::NvmeTcp {
            bytes.reverse();
        }
        let length = u32::from_be_bytes(bytes);
        let length = match self {
            Self::Zero => 0,
            Self::Less => length / 2,
            Self::More => length.wrapping_add(64),
            Self::Huge if protocol == Protocol::Iscsi => 0xff_fffc,
            Self::Huge => u32::MAX - 3,
        };
        let mut bytes = length.to_be_bytes();
        if protocol == Protocol::NvmeTcp {
            bytes.reverse();
        }
        field.copy_from_slice(&bytes);
    }
}

/// Changes a byte, if it is there.
fn xor(pdu: &mut [u8], at: usize, by: u8) {
    if let Some(byte) = pdu.get_mut(at) {
        *byte ^= by;
    }
}

/// Where the data of a PDU begins.
fn header_length(protocol: Protocol, pdu: &[u8]) -> usize {
    let length = match protocol {
        Protocol::Iscsi => BHS_LENGTH,
        Protocol::NvmeTcp if pdu[3] > 0 => usize::from(pdu[3]),
        Protocol::NvmeTcp => pdu.len(),
    };
    length.min(pdu.len())
}

fn termination() -> Vec<u8> {
    let error = FatalError::plain(FatalErrorStatus::PDU_SEQUENCE_ERROR);
    let by = Terminator::Controller;
    TermReq { by, error }.encode(0).to_vec()
}

/// An unsolicited PDU with plausible contents.
fn unasked(protocol: Protocol, code: u8) -> Vec<u8> {
    match protocol {
        Protocol::Iscsi => {
            let mut pdu = Pdu::new(code).set_byte(1, 0x80);
            // Tags that are none, but for a Reject and a Logout Response, and numbers that may be due.
            pdu = pdu.set_word(16, 0xffff_ffff).set_word(20, 7);
            pdu = pdu.set_word(24, 1).set_word(28, 1).set_word(32, 64);
            if code == opcode::REJECT {
                pdu = pdu.set_byte(2, 0x04).with_data(&[0x01; 48]);
            }
            pdu.to_bytes(false, false)
        }
        Protocol::NvmeTcp => {
            let length = match code {
                0x00 | 0x01 => 128,
                0x04 => 72,
                _ => 24,
            };
            let mut pdu = vec![0; usize::from(length)];
            pdu[..8].copy_from_slice(&[code, 0, length, 0, length, 0, 0, 0]);
            pdu
        }
    }
}

/// Does an act to one PDU of a connection, counted from 0.
pub struct Rude {
    pub protocol: Protocol,
    pub framing: Framing,
    pub digests: Digests,
    pub act: Act,
    /// PDUs until it is due, over all connections of the relay.
    pub countdown: std::sync::Arc<std::sync::atomic::AtomicUsize>,
    pub random: Random,
}

impl Tamper for Rude {
    fn pass(&mut self, bytes: &[u8]) -> Passed {
        use std::sync::atomic::Ordering::SeqCst;
        self.framing.push(bytes);
        let mut out = Vec::new();
        while let Some(length) = self.framing.next(&self.digests) {
            let pdu = self.framing.take(length);
            let before = self.countdown.fetch_sub(1, SeqCst);
            if before != 1 {
                // Wrapped around below 0: the act was done.
                out.extend(pdu);
                continue;
            }
            match self.act.apply(self.protocol, &pdu, &mut self.random) {
                Passed::On(pdu) => out.extend(pdu),
                Passed::Last(rest) => return Passed::Last([out, rest].concat()),
                Passed::Silence(rest) => return Passed::Silence([out, rest].concat()),
                // Earlier PDUs of the same piece are lost with it.
                repeated @ Passed::Repeated(..) => return repeated,
            }
        }
        Passed::On(out)
    }
}
