//! I/O queues of one NVMe/TCP controller, on the product's own host machine.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use longshore_block::media::Lba;
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::commands::{Blocks, Property, read, write};
use longshore_nvme::host::{
    Command, CommandSlot, Connection, Event, Outcome, R2tRequest, Transfer,
};
use longshore_tests::nvme::{Host, HostOptions};
use longshore_wire::transmit::{PayloadId, Segment, Transmit, WriteData};

use crate::address::Address;
use crate::figures::{Figures, Places};
use crate::load::{Queue, RECEIVE_BUFFER, check_volume, hung_up};
use crate::options::{Operation, Options};

/// Entries of the admin queue.
const ADMIN_ENTRIES: u16 = 32;

/// Pieces of one send call.
const SLICES_MAX: usize = 512;

/// The data that all writes share; nothing waits for its release.
const PATTERN: PayloadId = PayloadId(0);

/// Connects the controller's queues. It lives as long as the host that comes with them.
pub fn connect(options: &Options) -> io::Result<(Vec<Box<dyn Queue>>, Host)> {
    let Address::Nvme {
        portal,
        subsystem,
        namespace,
    } = &options.address
    else {
        unreachable!("the caller looked at the address");
    };
    let host_options = HostOptions {
        subsystem: subsystem.clone(),
        entries: ADMIN_ENTRIES,
        flow_control: options.flow_control,
        ..HostOptions::default()
    };
    let host_options = host_options.digests(options.header_digest, options.data_digest);
    let mut host = Host::connect_admin(*portal, &host_options)?;
    let depth = depth_of(options.depth, host.property(Property::CAP)?)?;
    host.options.entries = depth + 1;
    host.enable()?;
    let (block_size, blocks) = format_of(&host.identify(0x00, *namespace)?)?;
    check_volume(options, block_size, blocks)?;
    let command = command(options, NamespaceId(*namespace), block_size);
    host.ask_for_queues(options.queues)?;
    let mut queues: Vec<Box<dyn Queue>> = Vec::new();
    for number in 1..=options.queues {
        let (stream, connection) = host.connect_queue(number)?.into_parts();
        let digests = connection.digests();
        if (digests.header, digests.data) != (options.header_digest, options.data_digest) {
            return Err(io::Error::other("the controller does without a digest"));
        }
        queues.push(Box::new(NvmeQueue {
            stream,
            connection,
            transmit: Transmit::new(),
            released: Vec::new(),
            command,
            pattern: vec![0xa5; usize::try_from(options.size).map_err(io::Error::other)?],
            sent: vec![Instant::now(); usize::from(depth)],
            places: Places::new(options, block_size, number),
            receive: vec![0; RECEIVE_BUFFER],
        }));
    }
    Ok((queues, host))
}

/// Commands that a queue keeps under way. One of N entries holds N − 1, and N are common limits, so
/// who asks for one too many gets one less.
fn depth_of(asked: u16, capabilities: u64) -> io::Result<u16> {
    let mqes = u16::try_from(capabilities & 0xffff).expect("16 bits were kept");
    if asked.saturating_sub(1) > mqes {
        let text = format!("a queue of {} entries is the longest", u32::from(mqes) + 1);
        return Err(io::Error::other(text));
    }
    Ok(asked.min(mqes))
}

/// Block size and count of blocks, of Identify Namespace.
fn format_of(identify: &[u8]) -> io::Result<(u32, u64)> {
    let blocks = u64::from_le_bytes(identify[..8].try_into().expect("eight bytes were cut"));
    let format = usize::from(identify[26] & 0x0f); // FLBAS
    let lbads = identify[128 + format * 4 + 2];
    let block_size = 1_u32
        .checked_shl(u32::from(lbads))
        .ok_or_else(|| io::Error::other(format!("LBADS is {lbads}")))?;
    Ok((block_size, blocks))
}

/// The command of the run, at block 0.
fn command(options: &Options, namespace: NamespaceId, block_bytes: u32) -> Command {
    let blocks = Blocks {
        namespace,
        lba: Lba(0),
        count: options.size / block_bytes,
        block_bytes,
    };
    match options.operation {
        Operation::Read => read(blocks),
        Operation::Write => write(blocks, 0),
    }
}

/// An I/O queue with as many commands under way as it holds.
struct NvmeQueue {
    stream: TcpStream,
    connection: Connection,
    transmit: Transmit,
    released: Vec<PayloadId>,
    /// What is sent again and again; its first block changes.
    command: Command,
    pattern: Vec<u8>,
    /// When the command of each slot was sent.
    sent: Vec<Instant>,
    places: Places,
    receive: Vec<u8>,
}

impl Queue for NvmeQueue {
    fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn send(&mut self, figures: &mut Figures) -> io::Result<()> {
        let now = Instant::now();
        while self.connection.slots_free() > 0 && figures.begin() {
            self.command.entry.set_qword(10, self.places.next_lba());
            let slot = self
                .connection
                .submit(&self.command, part(&self.pattern, 0), &mut self.transmit)
                .map_err(|_| io::Error::other("the queue is full"))?;
            self.sent[usize::from(slot.0)] = now;
        }
        self.flush()
    }

    fn receive(&mut self, figures: &mut Figures) -> io::Result<()> {
        let length = self.stream.read(&mut self.receive)?;
        if length == 0 {
            return Err(hung_up());
        }
        let now = Instant::now();
        let mut rest = &self.receive[..length];
        loop {
            match self.connection.next(&mut rest, &mut self.transmit) {
                Event::NeedMore => return Ok(()),
                Event::DataIn { .. } => {}
                Event::R2t(r2t) => {
                    let data = wanted(&self.pattern, &r2t);
                    self.connection.send_data(&r2t, data, &mut self.transmit);
                }
                Event::Completed { slot, outcome } => {
                    self.check(slot, &outcome)?;
                    figures.ended(self.sent[usize::from(slot.0)], now);
                }
                event @ (Event::Ready | Event::Close(_)) => {
                    return Err(io::Error::other(format!("{event:?}")));
                }
            }
        }
    }
}

impl NvmeQueue {
    fn check(&self, slot: CommandSlot, outcome: &Outcome) -> io::Result<()> {
        let data_in = match self.command.transfer {
            Transfer::ToHost(length) => length,
            _ => 0,
        };
        if outcome.status.is_success() && outcome.data_in_length == data_in {
            return Ok(());
        }
        Err(io::Error::other(format!("{slot:?} failed: {outcome:?}")))
    }

    /// Sends all that is queued; data of writes straight from the pattern.
    fn flush(&mut self) -> io::Result<()> {
        while !self.transmit.is_empty() {
            let bytes_of = |segment| match segment {
                Segment::Arena { start, length } => &self.transmit.arena()[start..start + length],
                Segment::Buffer { start, length, .. } => &self.pattern[start..start + length],
                Segment::Zeros { .. } => unreachable!("hosts send no zeros"),
            };
            let segments = self.transmit.segments().take(SLICES_MAX);
            let slices: Vec<IoSlice<'_>> = segments.map(|s| IoSlice::new(bytes_of(s))).collect();
            let sent = self.stream.write_vectored(&slices)?;
            self.transmit.advance(sent, &mut self.released);
            self.released.clear();
        }
        Ok(())
    }
}

/// The pattern from `start` on, by reference.
fn part(pattern: &[u8], start: usize) -> WriteData<'_> {
    WriteData::Buffer {
        id: PATTERN,
        start,
        bytes: &pattern[start..],
    }
}

/// What an R2T asks for.
fn wanted<'a>(pattern: &'a [u8], r2t: &R2tRequest) -> WriteData<'a> {
    let start = usize::try_from(r2t.buffer_offset).expect("32 bits fit");
    let length = usize::try_from(r2t.length).expect("32 bits fit");
    part(&pattern[..start + length], start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_in_use_is_looked_up() {
        let mut identify = vec![0; 4096];
        identify[..8].copy_from_slice(&1000_u64.to_le_bytes());
        identify[26] = 1;
        identify[128 + 2] = 9;
        identify[132 + 2] = 12;
        assert_eq!(format_of(&identify).unwrap(), (4096, 1000));
        identify[132 + 2] = 40;
        assert!(format_of(&identify).is_err());
    }

    #[test]
    fn a_queue_holds_one_command_less_than_it_has_entries() {
        let mqes = 127;
        assert_eq!(depth_of(32, mqes).unwrap(), 32);
        assert_eq!(depth_of(127, mqes).unwrap(), 127);
        assert_eq!(depth_of(128, mqes).unwrap(), 127);
        assert!(depth_of(129, mqes).is_err());
    }
}
