//! What of a record came whole.

use std::sync::Arc;

use longshore_reactor::buffer::Buffer;
use longshore_volume::Io;

use crate::drive::Drive;
use crate::error::PoolError;
use crate::format::op::Op;
use crate::format::record::{Part, PartKind};
use crate::format::superblock::Superblock;
use crate::load::damaged;
use crate::place::Place;

/// Reads payloads of records.
#[derive(Clone, Copy)]
pub struct Inspection<'a> {
    pub io: &'a Io,
    pub label: &'a Superblock,
    pub drives: &'a [Option<Arc<Drive>>],
}

/// The parts of a record, as they lie on the drives.
#[derive(Debug, Default)]
pub struct Inspected {
    /// For each part, whether its bytes match their checksums.
    pub intact: Vec<bool>,
    /// The changes among the intact ones.
    pub ops: Vec<Op>,
}

impl Inspection<'_> {
    /// Compares the parts of a record with what lies there. Of a mirror, a part is intact that is so on either side.
    pub async fn inspect(&self, parts: &[Part], payload: Place) -> Result<Inspected, PoolError> {
        let length = parts.iter().map(|part| part.offset + part.length).max();
        let length = usize::try_from(length.unwrap_or(0)).expect("32 bits fit");
        let drive = self.drives[usize::from(payload.drive())].as_ref();
        let drive = drive.expect("records lie on drives that are there");
        let mut sides: Vec<Option<Buffer>> = Vec::new();
        for (_, side) in drive.current() {
            let whole = length.next_multiple_of(drive.align);
            let read = match length {
                0 => None,
                _ => side.read_new(self.io, payload.offset(), whole).await.ok(),
            };
            sides.push(read);
        }
        let mut inspected = Inspected::default();
        for part in parts {
            let mut sides = sides.iter().map(|data| data.as_deref().unwrap_or(&[]));
            let intact = sides.find(|data| part.is_intact(data));
            inspected.intact.push(intact.is_some());
            let Some(data) = intact else {
                continue;
            };
            if is_op(part) {
                let start = usize::try_from(part.offset).expect("32 bits fit");
                let end = start + usize::try_from(part.length).expect("32 bits fit");
                let op = Op::decode(&data[start..end]);
                let op =
                    op.map_err(|error| damaged(self.label, "a change of the catalogue", error))?;
                inspected.ops.push(op);
            }
        }
        Ok(inspected)
    }
}

impl Inspected {
    /// Whether a change of the catalogue is damaged.
    #[must_use]
    pub fn lacks_ops(&self, parts: &[Part]) -> bool {
        let mut all = parts.iter().zip(&self.intact);
        all.any(|(part, is_intact)| is_op(part) && !is_intact)
    }

    /// The parts that count. Of a record that was on the medium all do: what is damaged there reads as a medium error.
    /// Of others, those that came whole.
    #[must_use]
    pub fn counting(self, parts: &[Part], is_durable: bool) -> (Vec<Part>, Vec<Op>) {
        let all = parts.iter().zip(&self.intact);
        let counting = all.filter(|(part, is_intact)| **is_intact || is_durable && !is_op(part));
        let counting = counting.map(|(part, _)| part.clone()).collect();
        (counting, self.ops)
    }
}

fn is_op(part: &Part) -> bool {
    matches!(part.kind, PartKind::Op { .. })
}

/// Whether a record changes the catalogue.
#[must_use]
pub fn has_ops(parts: &[Part]) -> bool {
    parts.iter().any(is_op)
}
