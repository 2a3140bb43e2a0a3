//! NVMe/TCP PDUs as bytes, with setters by offset (NVMe/TCP transport 1.0 §3.6.2). Nothing is checked
//! when sending, so that a test can send what no host should.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::LIMIT;
use crate::pdu::crc32c;

pub mod kind {
    pub const IC_REQ: u8 = 0x00;
    pub const IC_RESP: u8 = 0x01;
    pub const H2C_TERM_REQ: u8 = 0x02;
    pub const C2H_TERM_REQ: u8 = 0x03;
    pub const CAPSULE_CMD: u8 = 0x04;
    pub const CAPSULE_RESP: u8 = 0x05;
    pub const H2C_DATA: u8 = 0x06;
    pub const C2H_DATA: u8 = 0x07;
    pub const R2T: u8 = 0x09;
}

/// Fatal Error Status of a C2HTermReq.
pub mod fes {
    pub const INVALID_PDU_HEADER_FIELD: u16 = 1;
    pub const PDU_SEQUENCE_ERROR: u16 = 2;
    pub const HEADER_DIGEST_ERROR: u16 = 3;
    pub const DATA_TRANSFER_OUT_OF_RANGE: u16 = 4;
    pub const DATA_TRANSFER_LIMIT_EXCEEDED: u16 = 5;
    pub const UNSUPPORTED_PARAMETER: u16 = 6;
}

/// A PDU: its header, HLEN bytes of it, and its data. Digests and padding are added when sending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pdu {
    /// Common header and what is specific to the type. PLEN and PDO are filled in by [`Pdu::new`] and
    /// [`Pdu::with_data`] and may be made to lie afterwards.
    pub header: Vec<u8>,
    pub data: Vec<u8>,
}

impl Pdu {
    /// A PDU of this type whose header has `hlen` bytes, everything else zero.
    pub fn new(kind: u8, hlen: u8) -> Self {
        let mut header = vec![0; usize::from(hlen)];
        header[0] = kind;
        header[2] = hlen;
        header[4] = hlen;
        let data = Vec::new();
        Self { header, data }
    }

    /// ICReq, with neither digests nor alignment.
    pub fn ic_req() -> Self {
        Self::new(kind::IC_REQ, 128)
    }

    pub fn command(entry: &[u8; 64]) -> Self {
        let mut pdu = Self::new(kind::CAPSULE_CMD, 72);
        pdu.header[8..].copy_from_slice(entry);
        pdu
    }

    /// H2CData for a command and an R2T.
    pub fn h2c_data(command: u16, transfer_tag: u16, offset: u32, data: &[u8]) -> Self {
        let length = u32::try_from(data.len()).expect("data is short");
        Self::new(kind::H2C_DATA, 24)
            .set_byte(1, 0x04) // LAST_PDU
            .set_half(8, command)
            .set_half(10, transfer_tag)
            .set_word(12, offset)
            .set_word(16, length)
            .with_data(data)
    }

    /// Sets data, PDO and PLEN.
    #[must_use]
    pub fn with_data(mut self, data: &[u8]) -> Self {
        self.data = data.to_vec();
        let hlen = self.header[2];
        let plen = u32::from(hlen) + u32::try_from(data.len()).expect("data is short");
        self.set_byte(3, hlen).set_word(4, plen)
    }

    /// Sets one byte of the header.
    #[must_use]
    pub fn set_byte(mut self, offset: usize, value: u8) -> Self {
        self.header[offset] = value;
        self
    }

    /// Sets two bytes of the header.
    #[must_use]
    pub fn set_half(mut self, offset: usize, value: u16) -> Self {
        self.header[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
        self
    }

    /// Sets four bytes of the header.
    #[must_use]
    pub fn set_word(mut self, offset: usize, value: u32) -> Self {
        self.header[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        self
    }

    pub fn kind(&self) -> u8 {
        self.header[0]
    }

    /// Two bytes of the header.
    pub fn half(&self, offset: usize) -> u16 {
        u16::from_le_bytes([self.header[offset], self.header[offset + 1]])
    }

    /// Four bytes of the header.
    pub fn word(&self, offset: usize) -> u32 {
        let bytes = self.header[offset..offset + 4].try_into();
        u32::from_le_bytes(bytes.expect("four bytes were cut"))
    }

    /// The bytes to send, without digests.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.header.clone(), self.data.clone()].concat()
    }

    /// The bytes to send with both digests: flags, PDO and PLEN are adjusted.
    pub fn to_bytes_with_digests(&self) -> Vec<u8> {
        let mut header = self.header.clone();
        header[1] |= 0x01;
        let trailer = if self.data.is_empty() { 4 } else { 8 };
        if !self.data.is_empty() {
            header[1] |= 0x02;
            header[3] += 4;
        }
        let plen = self.word(4) + trailer;
        header[4..8].copy_from_slice(&plen.to_le_bytes());
        let mut bytes = header.clone();
        bytes.extend(crc32c(&header).to_le_bytes());
        if !self.data.is_empty() {
            bytes.extend(&self.data);
            bytes.extend(crc32c(&self.data).to_le_bytes());
        }
        bytes
    }
}

/// A TCP connection on which a test sends what it likes.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
}

impl RawConnection {
    /// A TCP connection.
    ///
    /// # Errors
    /// The socket's.
    pub fn open(portal: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(portal)?;
        stream.set_nodelay(true)?;
        let limit = Some(LIMIT);
        stream.set_read_timeout(limit)?;
        stream.set_write_timeout(limit)?;
        Ok(Self { stream })
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The socket's.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a PDU without digests.
    ///
    /// # Errors
    /// The socket's.
    pub fn send(&mut self, pdu: &Pdu) -> io::Result<()> {
        self.send_bytes(&pdu.to_bytes())
    }

    /// Receives a PDU without digests.
    ///
    /// # Errors
    /// The socket's; lengths that do not fit each other.
    pub fn receive(&mut self) -> io::Result<Pdu> {
        let mut common = [0; 8];
        self.stream.read_exact(&mut common)?;
        let hlen = usize::from(common[2]);
        let plen = u32::from_le_bytes([common[4], common[5], common[6], common[7]]);
        let plen = usize::try_from(plen).expect("32 bits fit");
        if hlen < 8 || plen < hlen || plen > 1 << 25 {
            let text = format!("HLEN {hlen} and PLEN {plen}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut header = common.to_vec();
        header.resize(hlen, 0);
        self.stream.read_exact(&mut header[8..])?;
        let mut data = vec![0; plen - hlen];
        self.stream.read_exact(&mut data)?;
        Ok(Pdu { header, data })
    }

    /// Whether the controller closes the connection within `limit`; what it sends before is given
    /// back.
    ///
    /// # Errors
    /// The socket's.
    pub fn drain(&mut self, limit: Duration) -> io::Result<(Vec<u8>, bool)> {
        self.stream.set_read_timeout(Some(limit))?;
        let mut bytes = Vec::new();
        let mut buffer = [0; 65_536];
        let closed = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break true,
                Ok(length) => bytes.extend(&buffer[..length]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => break false,
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => break true,
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        };
        let limit = Some(LIMIT);
        self.stream.set_read_timeout(limit)?;
        Ok((bytes, closed))
    }
}
