//! The protocol of the floor, on the client's side: requests of fixed length, answers of fixed length,
//! in order. For [`Queue`](longshore_initiator::queue::Queue), as iSCSI and NVMe/TCP are.

use longshore_initiator::error::CloseCause;
use longshore_initiator::operation::{Operation, Reply};
use longshore_initiator::queue::{Machine, MachineEvent, PayloadWanted, Refusal};
use longshore_wire::transmit::{Chunk, Transmit, WriteData};

use crate::shape::{Shape, size};

/// Bytes of a block: the unit in which the load generator thinks.
pub const BLOCK_SIZE: u32 = 512;

/// Counts requests and bytes, and decodes nothing.
#[derive(Debug)]
pub struct FloorMachine {
    shape: Shape,
    request: Vec<u8>,
    slots: u16,
    /// Requests without an answer; their slots follow one another.
    in_flight: u16,
    /// The slot whose answer comes next.
    next: u16,
    /// Bytes of that answer that have come.
    position: usize,
}

impl FloorMachine {
    pub fn new(shape: Shape, slots: u16) -> Self {
        Self {
            shape,
            request: vec![0; size(shape.request_bytes)],
            slots,
            in_flight: 0,
            next: 0,
            position: 0,
        }
    }

    /// Bytes of data of the answer that have come.
    fn offset(&self) -> Option<usize> {
        self.position.checked_sub(size(self.shape.answer_bytes))
    }
}

impl Machine for FloorMachine {
    type Token = ();

    fn slots(&self) -> usize {
        usize::from(self.slots)
    }

    fn room(&self) -> usize {
        usize::from(self.slots - self.in_flight)
    }

    fn block_size(&self) -> u32 {
        BLOCK_SIZE
    }

    #[inline]
    fn submit(
        &mut self,
        _operation: &Operation,
        data: WriteData<'_>,
        transmit: &mut Transmit,
    ) -> Result<u16, Refusal> {
        if self.in_flight == self.slots {
            return Err(Refusal::Busy);
        }
        transmit.push_bytes(&self.request);
        let length = data.bytes().len();
        if length > 0 {
            match data.chunk(0, length, true) {
                Chunk::Bytes(bytes) => transmit.push_bytes(bytes),
                Chunk::Buffer {
                    id, start, bytes, ..
                } => transmit.push_buffer(id, start, bytes.len(), true),
                Chunk::Zeros(_) | Chunk::Unseen { .. } => {
                    unreachable!("data of writes has bytes")
                }
            }
        }
        let slot = (self.next + self.in_flight) % self.slots;
        self.in_flight += 1;
        Ok(slot)
    }

    #[inline]
    fn next<'a>(&mut self, input: &mut &'a [u8], _transmit: &mut Transmit) -> MachineEvent<'a, ()> {
        let slot = self.next;
        if self.in_flight == 0 {
            if input.is_empty() {
                return MachineEvent::NeedMore;
            }
            let cause = "an answer to nothing".to_owned();
            return MachineEvent::Closed(CloseCause::Protocol(cause));
        }
        let header = size(self.shape.answer_bytes);
        if self.position < header {
            let n = input.len().min(header - self.position);
            *input = &input[n..];
            self.position += n;
            if self.position < header {
                return MachineEvent::NeedMore;
            }
        }
        let left = self.shape.answer() - self.position;
        if left > 0 {
            let n = input.len().min(left);
            if n == 0 {
                return MachineEvent::NeedMore;
            }
            let offset = self.offset().unwrap_or_default();
            let (bytes, rest) = input.split_at(n);
            *input = rest;
            self.position += n;
            return MachineEvent::DataIn {
                slot,
                offset: u32::try_from(offset).expect("less than the data of an answer"),
                bytes,
            };
        }
        self.position = 0;
        self.next = (slot + 1) % self.slots;
        self.in_flight -= 1;
        MachineEvent::Completed {
            slot,
            result: Ok(Reply::Done),
        }
    }

    #[inline]
    fn payload_wanted(&self) -> Option<PayloadWanted> {
        let offset = self.offset()?;
        let length = self.shape.answer() - self.position;
        (length > 0).then(|| PayloadWanted {
            slot: self.next,
            offset: u32::try_from(offset).expect("less than the data of an answer"),
            length: u32::try_from(length).expect("no more than the data of an answer"),
        })
    }

    #[inline]
    fn payload_received(&mut self, bytes: &[u8]) {
        self.position += bytes.len();
    }

    fn send_data(&mut self, _token: (), _data: WriteData<'_>, _transmit: &mut Transmit) {}

    fn ping(&mut self, _data: &[u8], _transmit: &mut Transmit) -> bool {
        false
    }

    fn data_pdus(&self) -> u64 {
        0
    }

    fn close(&mut self, _transmit: &mut Transmit) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_wire::transmit::Transmit;

    const SHAPE: Shape = Shape {
        request_bytes: 48,
        payload_in: 0,
        answer_bytes: 2,
        payload_out: 3,
    };

    fn submitted(count: u16) -> (FloorMachine, Transmit) {
        let (mut machine, mut transmit) = (FloorMachine::new(SHAPE, 4), Transmit::new());
        for slot in 0..count {
            let taken = machine.submit(&Operation::Flush, WriteData::NONE, &mut transmit);
            assert_eq!(taken, Ok(slot));
        }
        (machine, transmit)
    }

    #[test]
    fn answers_cut_anywhere_end_requests_in_order() {
        for cut in 0..=10 {
            let (mut machine, mut transmit) = submitted(2);
            assert_eq!(transmit.pending_bytes(), 96);
            let mut ended = Vec::new();
            let mut data = 0;
            for mut input in [&[0; 10][..cut], &[0; 10][cut..]] {
                loop {
                    match machine.next(&mut input, &mut transmit) {
                        MachineEvent::NeedMore => break,
                        MachineEvent::DataIn { bytes, .. } => data += bytes.len(),
                        MachineEvent::Completed { slot, .. } => ended.push(slot),
                        other => panic!("{other:?}"),
                    }
                }
                assert!(input.is_empty());
            }
            assert_eq!((ended, data), (vec![0, 1], 6));
            assert_eq!(machine.room(), 4);
        }
    }

    #[test]
    fn data_may_be_received_straight_to_its_place() {
        let (mut machine, mut transmit) = submitted(1);
        assert_eq!(machine.payload_wanted(), None, "a header comes first");
        let event = machine.next(&mut &[0; 3][..], &mut transmit);
        assert!(matches!(event, MachineEvent::DataIn { offset: 0, .. }));
        let wanted = machine.payload_wanted().unwrap();
        assert_eq!((wanted.slot, wanted.offset, wanted.length), (0, 1, 2));
        machine.payload_received(&[0; 2]);
        assert_eq!(machine.payload_wanted(), None);
        let event = machine.next(&mut &[][..], &mut transmit);
        assert!(matches!(event, MachineEvent::Completed { slot: 0, .. }));
    }

    #[test]
    fn there_is_room_for_as_many_as_there_are_slots() {
        let (mut machine, mut transmit) = submitted(4);
        let refused = machine.submit(&Operation::Flush, WriteData::NONE, &mut transmit);
        assert_eq!(refused, Err(Refusal::Busy));
    }

    #[test]
    fn an_answer_to_nothing_ends_the_connection() {
        let (mut machine, mut transmit) = submitted(0);
        let event = machine.next(&mut &[0; 2][..], &mut transmit);
        assert!(matches!(event, MachineEvent::Closed(_)));
    }
}
