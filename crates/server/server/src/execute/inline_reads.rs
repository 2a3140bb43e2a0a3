//! The interface of a protocol's machine for reads: places for data in the transmit queue.

use longshore_wire::transmit::Transmit;

/// Reads whose data lies behind its header in the transmit queue. `slot` is the number of a command.
pub(crate) trait InlineReads {
    /// Whether a digest covers what is read.
    fn has_data_digest(&self) -> bool;
    /// Place in the transmit queue for what a task reads, behind its header. `None`: it does not fit.
    fn begin_inline_read<'t>(
        &mut self,
        slot: u32,
        length: u32,
        transmit: &'t mut Transmit,
    ) -> Option<&'t mut [u8]>;
    /// The same in one go, answer included: see the machines' functions of that name.
    fn read_inline(
        &mut self,
        slot: u32,
        length: u32,
        transmit: &mut Transmit,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Option<bool>;
    /// The place is not needed after all.
    fn rollback_inline_read(&mut self, slot: u32, transmit: &mut Transmit);
}
