//! Operation codes (NVMe base 2.0 §3.3.3.1, Figures 138 and 390; NVM command set 1.0 Figure 18).

/// OPC. Bits 1:0 say which way data goes: 1 to the controller, 2 to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

/// Opcodes of the admin queue (NVMe base §5).
pub mod admin {
    use super::Opcode;

    pub const GET_LOG_PAGE: Opcode = Opcode(0x02);
    pub const IDENTIFY: Opcode = Opcode(0x06);
    pub const ABORT: Opcode = Opcode(0x08);
    pub const SET_FEATURES: Opcode = Opcode(0x09);
    pub const GET_FEATURES: Opcode = Opcode(0x0a);
    pub const ASYNC_EVENT_REQUEST: Opcode = Opcode(0x0c);
    pub const KEEP_ALIVE: Opcode = Opcode(0x18);
    pub const SANITIZE: Opcode = Opcode(0x84);
}

/// Commands of the NVM command set, and the reservation commands of I/O queues.
pub mod io {
    use super::Opcode;

    pub const FLUSH: Opcode = Opcode(0x00);
    pub const WRITE: Opcode = Opcode(0x01);
    pub const READ: Opcode = Opcode(0x02);
    pub const WRITE_UNCORRECTABLE: Opcode = Opcode(0x04);
    pub const COMPARE: Opcode = Opcode(0x05);
    pub const WRITE_ZEROES: Opcode = Opcode(0x08);
    pub const DATASET_MANAGEMENT: Opcode = Opcode(0x09);
    pub const VERIFY: Opcode = Opcode(0x0c);
    pub const RESERVATION_REGISTER: Opcode = Opcode(0x0d);
    pub const RESERVATION_REPORT: Opcode = Opcode(0x0e);
    pub const RESERVATION_ACQUIRE: Opcode = Opcode(0x11);
    pub const RESERVATION_RELEASE: Opcode = Opcode(0x15);
    pub const COPY: Opcode = Opcode(0x19);
}

/// The one operation code of all Fabrics commands, on both kinds of queue.
pub const FABRICS: Opcode = Opcode(0x7f);

/// Types of Fabrics commands, FCTYPE.
pub mod fabrics {
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    pub const DISCONNECT: u8 = 0x08;
}

/// Which way the data of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    None,
    ToController,
    ToHost,
    /// Both; no command we know.
    Both,
}

impl Opcode {
    /// Which way data goes, if there is any. For Fabrics commands FCTYPE says so, in the same bits.
    #[inline]
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self.0 & 3 {
            0 => Direction::None,
            1 => Direction::ToController,
            2 => Direction::ToHost,
            _ => Direction::Both,
        }
    }
}
