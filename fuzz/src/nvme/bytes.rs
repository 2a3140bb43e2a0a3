//! The controller's end of a connection, told anything. However the bytes are cut into pieces, the
//! driver sees the same and the host hears the same.

use longshore_nvme::command::SubmissionEntry;
use longshore_nvme::opcode::FABRICS;
use longshore_nvme::server::{
    ArrivedCommand, CloseReason, CommandSlot, Completion, Connection, ConnectionConfig,
    ConnectionEvent, DataTransfer, Payload, QueueParameters,
};
use longshore_nvme::status::Status;
use longshore_wire::transmit::Transmit;

use crate::structured::drain;

/// No single event may leave more than this to send: a read of [`READ_MAX`] bytes with its headers.
const TRANSMIT_MAX: usize = 64 << 10;
/// Reads are answered with at most so many bytes.
const READ_MAX: u32 = 4096;
/// No more data is taken of a command.
const WRITE_MAX: u32 = 16_384;

/// What the driver saw.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Command(ArrivedCommand),
    /// From that offset on. Pieces that follow each other are one.
    Data(CommandSlot, u32, Vec<u8>),
    Complete(CommandSlot),
    Failed(CommandSlot),
    Close(CloseReason),
}

/// A connection, and a driver whose answers depend on what comes only.
struct Driver {
    connection: Connection,
    transmit: Transmit,
    seen: Vec<Seen>,
    sent: Vec<u8>,
    /// Data are received straight into their place where that is possible.
    direct: bool,
}

impl Driver {
    fn new(direct: bool) -> Self {
        let config = ConnectionConfig {
            max_h2c_data_bytes: 4096,
            r2t_bytes: 2048,
            ..ConnectionConfig::default()
        };
        Self {
            connection: Connection::new(config, 0),
            transmit: Transmit::new(),
            seen: Vec::new(),
            sent: Vec::new(),
            direct,
        }
    }

    /// Feeds bytes and serves all that comes of them. `false`: the connection is over.
    fn feed(&mut self, mut bytes: &[u8]) -> bool {
        // Each event but NeedMore takes input or ends a command.
        let limit = 64 + bytes.len() * 4;
        for _ in 0..limit {
            if self.direct {
                self.place(&mut bytes);
            }
            match self.connection.next(&mut bytes, &mut self.transmit, 1) {
                ConnectionEvent::NeedMore => {
                    assert!(bytes.is_empty(), "the machine wants more and leaves some");
                    self.drain();
                    return true;
                }
                ConnectionEvent::Command(command) => {
                    self.seen.push(Seen::Command(command));
                    self.command(command);
                }
                ConnectionEvent::DataOut {
                    slot,
                    buffer_offset,
                    bytes,
                } => self.data(slot, buffer_offset, bytes),
                ConnectionEvent::DataOutComplete { slot } => {
                    self.seen.push(Seen::Complete(slot));
                    self.complete(slot, Completion::status(Status::SUCCESS));
                }
                ConnectionEvent::DataOutFailed { slot } => {
                    self.seen.push(Seen::Failed(slot));
                    let status = Status::TRANSIENT_TRANSPORT_ERROR;
                    self.complete(slot, Completion::status(status));
                }
                ConnectionEvent::Close(reason) => {
                    self.seen.push(Seen::Close(reason));
                    self.drain();
                    return false;
                }
            }
            self.drain();
        }
        panic!("{limit} events of one input");
    }

    fn place(&mut self, bytes: &mut &[u8]) {
        while let Some(wanted) = self.connection.payload_wanted()
            && !bytes.is_empty()
        {
            let length = usize::try_from(wanted.length).expect("64 bits");
            let (now, later) = bytes.split_at(length.min(bytes.len()));
            self.data(wanted.slot, wanted.buffer_offset, now);
            self.connection.payload_received(now, 1);
            *bytes = later;
        }
    }

    fn data(&mut self, slot: CommandSlot, offset: u32, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("input is short");
        assert!(length > 0 && offset + length <= WRITE_MAX);
        if let Some(Seen::Data(before, start, data)) = self.seen.last_mut()
            && *before == slot
            && u64::from(offset) == u64::from(*start) + data.len() as u64
        {
            data.extend(bytes);
            return;
        }
        self.seen.push(Seen::Data(slot, offset, bytes.to_vec()));
    }

    fn command(&mut self, command: ArrivedCommand) {
        let ArrivedCommand { slot, entry, data } = command;
        if is_connect(&entry) {
            let queue = QueueParameters {
                id: 1,
                entries: 8,
                flow_control: entry.dword(11) & 1 == 0,
            };
            self.connection.connected(slot, queue);
        }
        match data {
            DataTransfer::InCapsule { length } | DataTransfer::ToController { length } => {
                let wanted = length.min(WRITE_MAX);
                self.connection
                    .want_data_out(slot, wanted, &mut self.transmit);
            }
            // Some stay, so that the queue fills up.
            _ if entry.dword(15) & 3 == 3 => {}
            DataTransfer::None | DataTransfer::ToHost { .. } => {
                let completion = Completion {
                    data: Payload::Zeros(data.length().min(READ_MAX)),
                    ..Completion::status(Status::SUCCESS)
                };
                self.complete(slot, completion);
            }
        }
    }

    fn complete(&mut self, slot: CommandSlot, completion: Completion<'_>) {
        self.connection
            .complete(slot, completion, &mut self.transmit);
    }

    fn drain(&mut self) {
        let now = drain(&mut self.transmit);
        assert!(
            now.len() <= TRANSMIT_MAX,
            "{} bytes after an event",
            now.len()
        );
        self.sent.extend(now);
    }
}

fn is_connect(entry: &SubmissionEntry) -> bool {
    entry.opcode() == FABRICS
}

/// Size of pieces, then the bytes of a host from the first one on.
pub(crate) fn nvme_target_bytes(data: &[u8]) {
    let Some((&size, stream)) = data.split_first() else {
        return;
    };
    let mut whole = Driver::new(false);
    whole.feed(stream);
    let mut pieces = Driver::new(size & 1 == 1);
    for piece in stream.chunks(usize::from(size / 2).max(1)) {
        if !pieces.feed(piece) {
            break;
        }
    }
    assert_eq!(pieces.seen, whole.seen);
    assert_eq!(pieces.sent, whole.sent);
    let Driver {
        connection,
        transmit,
        ..
    } = &mut whole;
    connection.handle_deadline(transmit, u64::MAX / 2);
    for slot in connection.commands().collect::<Vec<_>>() {
        if !connection.outstanding_data_out(slot) {
            let completion = Completion::status(Status::INTERNAL_ERROR);
            connection.complete(slot, completion, transmit);
        }
    }
}
