//! Requests that arrived before their turn.
//!
//! On a single connection requests come in order, except around one that was rejected (§7.3) and
//! from initiators that do not keep to it (§4.2.2.1). Such a request, with all of its unsolicited
//! data, is kept as the bytes it came as, without digests, and goes through the machine again when
//! the gap before it is closed. What is kept is bounded in number by the command window and in bytes
//! by [`HELD_BYTES_MAX`].

use crate::pdu::{BHS_LENGTH, Bhs, CmdSn, InitiatorTaskTag, padding};

/// Most bytes kept. An initiator that needs more has lost its way.
const HELD_BYTES_MAX: usize = 1 << 20;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// In order of arrival; few.
    requests: Vec<Request>,
    bytes: usize,
}

#[derive(Debug)]
struct Request {
    cmd_sn: CmdSn,
    /// Reserved for a request that counts as received without having come (§7.11).
    initiator_task_tag: InitiatorTaskTag,
    /// PDUs one after the other, without digests.
    stream: Vec<u8>,
}

/// There is no room for another PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Held {
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    fn position(&self, cmd_sn: CmdSn) -> Option<usize> {
        self.requests
            .iter()
            .position(|request| request.cmd_sn == cmd_sn)
    }

    /// Keeps a request. One with the same number stays what it was.
    pub(super) fn hold(
        &mut self,
        cmd_sn: CmdSn,
        bhs: &Bhs,
        ahs: &[u8],
        data: &[u8],
    ) -> Result<(), Full> {
        if self.position(cmd_sn).is_some() {
            return Ok(());
        }
        let stream = self.stream(bhs, ahs, data)?;
        self.requests.push(Request {
            cmd_sn,
            initiator_task_tag: bhs.initiator_task_tag(),
            stream,
        });
        Ok(())
    }

    /// Notes that a request counts as received (§11.6.1 b).
    pub(super) fn skip(&mut self, cmd_sn: CmdSn) {
        if let Some(at) = self.position(cmd_sn) {
            self.bytes -= self.requests[at].stream.len();
            self.requests.swap_remove(at);
        }
        self.requests.push(Request {
            cmd_sn,
            initiator_task_tag: InitiatorTaskTag::RESERVED,
            stream: Vec::new(),
        });
    }

    /// The number of the request kept that has this tag.
    pub(super) fn find(&self, tag: InitiatorTaskTag) -> Option<CmdSn> {
        if tag.is_reserved() {
            return None;
        }
        self.requests
            .iter()
            .find(|request| request.initiator_task_tag == tag)
            .map(|request| request.cmd_sn)
    }

    /// Keeps a Data-Out of a request kept.
    pub(super) fn hold_data_out(&mut self, bhs: &Bhs, data: &[u8]) -> Result<(), Full> {
        let tag = bhs.initiator_task_tag();
        let stream = self.stream(bhs, &[], data)?;
        if let Some(request) = self
            .requests
            .iter_mut()
            .find(|request| request.initiator_task_tag == tag)
        {
            request.stream.extend(stream);
        }
        Ok(())
    }

    fn stream(&mut self, bhs: &Bhs, ahs: &[u8], data: &[u8]) -> Result<Vec<u8>, Full> {
        let length = BHS_LENGTH + ahs.len() + data.len() + padding(data.len());
        if self.bytes + length > HELD_BYTES_MAX {
            return Err(Full);
        }
        self.bytes += length;
        let mut stream = [&bhs.0[..], ahs, data].concat();
        stream.resize(length, 0);
        Ok(stream)
    }

    /// Gives out the request with this number: empty for one that only counts as received.
    pub(super) fn take(&mut self, cmd_sn: CmdSn) -> Option<Vec<u8>> {
        let at = self.position(cmd_sn)?;
        let request = self.requests.swap_remove(at);
        self.bytes -= request.stream.len();
        Some(request.stream)
    }
}
