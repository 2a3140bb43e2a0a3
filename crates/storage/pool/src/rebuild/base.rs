//! What a rebuild starts from: a checkpoint, or what is left of one.

use std::collections::HashSet;
use std::sync::Arc;

use longshore_volume::Io;

use crate::drive::Drive;
use crate::format::long;
use crate::format::record::LayerId;
use crate::format::superblock::Superblock;
use crate::load::{Loaded, Loader};
use crate::place::Place;
use crate::pool::Newest;
use crate::report::Report;
use crate::search::{Found, Search};
use crate::segments::Segments;
use crate::state::State;
use crate::survey::{Head, Survey};

/// Numbers of records and generations are smaller.
const NUMBERS_END: u64 = 1 << 62;

/// What the rebuild starts from.
pub struct Base {
    pub state: State,
    pub newest: Newest,
    pub next_generation: u64,
    pub hand_out: Vec<(u32, u64)>,
    pub survey: Survey,
    pub kind: BaseKind,
    /// Records up to this one were on the medium, by superblocks and what is left of damaged checkpoints.
    pub claimed: u64,
    /// A later checkpoint is lost, and nothing says how many records it had.
    pub is_claim_lost: bool,
}

/// How much of a checkpoint is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseKind {
    Whole,
    /// Its catalogue, and its leaves up to this one.
    Catalog(Option<(LayerId, u32)>),
    Nothing,
}

/// Whether a checkpoint was begun, and another one of its number took its place: a segment has a generation that it handed
/// out, and another segment had it.
fn was_given_up(loaded: &Loaded, survey: &Survey) -> bool {
    let handed_out: HashSet<(u32, u64)> = loaded.hand_out.iter().copied().collect();
    let generations: HashSet<u64> = loaded.hand_out.iter().map(|(_, it)| *it).collect();
    let mut first = loaded.next_generation;
    while first > 0 && generations.contains(&(first - 1)) {
        first -= 1;
    }
    let new = first..loaded.next_generation;
    (0_u32..)
        .zip(&survey.heads)
        .any(|(segment, head)| match head {
            Head::Records(generation) => {
                new.contains(generation) && !handed_out.contains(&(segment, *generation))
            }
            Head::Map | Head::Unknown => false,
        })
}

impl Base {
    /// Looks for the newest checkpoint that is whole, or else the newest catalogue.
    ///
    /// `has_superblock`: the label names the last checkpoint that counted. One with a higher number was given up.
    pub async fn find(
        io: &Io,
        label: &Superblock,
        drives: &[Option<Arc<Drive>>],
        has_superblock: bool,
        report: &mut Report,
    ) -> Self {
        let segments = Segments::new(label.drives.clone(), label.segment_bytes);
        let mut survey = Survey::make(io, label, drives, &segments).await;
        // Numbers of all that were begun are not used again.
        let begun = survey.checkpoints.first().map_or(0, |(number, _)| *number);
        if has_superblock {
            survey.checkpoints.retain(|(number, place)| {
                *number < label.checkpoint_number
                    || *number == label.checkpoint_number && *place == label.checkpoint
            });
        }
        let newest = survey.checkpoints.iter().map(|(number, _)| *number).max();
        let newest = newest.unwrap_or(0).max(label.checkpoint_number);
        let number = newest.max(begun);
        if survey
            .checkpoints
            .first()
            .is_none_or(|(number, _)| *number < label.checkpoint_number)
        {
            let text = "its first part is damaged";
            report.note(format!("checkpoint {}", label.checkpoint_number), text);
        }
        let of = |(number, place): (u64, Place)| Superblock {
            checkpoint: place,
            checkpoint_number: number,
            ..label.clone()
        };
        let mut begun: Option<(Loaded, Option<(LayerId, u32)>)> = None;
        let mut claimed = label.checkpoint_record;
        for checkpoint in survey.checkpoints.clone() {
            let label = of(checkpoint);
            let error = match Loader::new(io, &label, drives).load().await {
                Ok(loaded) if checkpoint.0 < newest && was_given_up(&loaded, &survey) => {
                    report.note(format!("checkpoint {}", checkpoint.0), "was given up");
                    continue;
                }
                Ok(loaded) => {
                    let is_newest = checkpoint.0 == newest;
                    return Self {
                        is_claim_lost: claimed == 0 && !is_newest,
                        ..Self::of(loaded, BaseKind::Whole, survey, number, claimed)
                    };
                }
                Err(error) => error,
            };
            report.note(format!("checkpoint {}", checkpoint.0), error.to_string());
            let beginning = Loader::new(io, &label, drives).load_beginning().await;
            if let Some(beginning) = beginning {
                if checkpoint.0 == newest {
                    claimed = claimed.max(beginning.loaded.state.applied);
                }
                begun.get_or_insert((beginning.loaded, beginning.last_leaf));
            }
        }
        match begun {
            Some((loaded, last)) => {
                Self::of(loaded, BaseKind::Catalog(last), survey, number, claimed)
            }
            None => {
                let loaded = Loaded::nothing(label);
                Self::of(loaded, BaseKind::Nothing, survey, number, claimed)
            }
        }
    }

    fn of(loaded: Loaded, kind: BaseKind, survey: Survey, number: u64, claimed: u64) -> Self {
        Self {
            is_claim_lost: false,
            newest: Newest {
                // None that was written has this one's number.
                number,
                ..loaded.newest
            },
            state: loaded.state,
            next_generation: loaded.next_generation,
            hand_out: loaded.hand_out,
            survey,
            kind,
            claimed,
        }
    }

    pub fn is_whole(&self) -> bool {
        self.kind == BaseKind::Whole
    }

    /// Whether the records of a segment are behind the checkpoint, or count all the same.
    fn wants(&self, segment: u32, head: Head) -> bool {
        match head {
            Head::Map => false,
            Head::Unknown => self.state.segments.exists(segment),
            Head::Records(generation) => {
                !self.is_whole()
                    || generation >= self.next_generation
                    || self.hand_out.contains(&(segment, generation))
            }
        }
    }

    /// Looks for records that count.
    pub async fn search(
        &self,
        io: &Io,
        label: &Superblock,
        drives: &[Option<Arc<Drive>>],
        progress: &mut impl FnMut(u64, u64),
    ) -> Found {
        let segments = &self.state.segments;
        let search = Search {
            io,
            label,
            drives,
            segments,
        };
        let wanted: Vec<u32> = (0..segments.count())
            .filter(|segment| self.wants(*segment, self.survey.head(*segment)))
            .collect();
        let mut found = Found::default();
        for (done, segment) in wanted.iter().enumerate() {
            let generation = match self.survey.head(*segment) {
                Head::Records(generation) => Some(generation),
                Head::Unknown | Head::Map => None,
            };
            let place = segments.place(*segment);
            let drive = drives[usize::from(place.drive())].as_ref();
            let mut own = Found::default();
            for (_, side) in drive.iter().flat_map(|drive| drive.current()) {
                search.segment(side, *segment, generation, &mut own).await;
            }
            // No pool has had so many.
            own.by_number.retain(|number, (header, _)| {
                *number < NUMBERS_END && header.generation < NUMBERS_END
            });
            // What is left of earlier uses does not count.
            let newest = own
                .by_number
                .values()
                .map(|(header, _)| header.generation)
                .max();
            own.by_number
                .retain(|_, (header, _)| Some(header.generation) == newest);
            if !own.by_number.is_empty() {
                found.used.push(*segment);
            }
            found.by_number.append(&mut own.by_number);
            progress(
                long(done + 1) * segments.bytes(),
                long(wanted.len()) * segments.bytes(),
            );
        }
        found
    }
}
