//! What a rebuild starts from: a checkpoint, or what is left of one.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use longshore_volume::Io;

use crate::catalog::Fate;
use crate::drive::Drive;
use crate::format::long;
use crate::format::record::LayerId;
use crate::format::superblock::Superblock;
use crate::leaf::LEAF_PAGES;
use crate::leaves::LeafReader;
use crate::load::{Beginning, Loaded, Loader};
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

fn known(state: &State, last: Option<(LayerId, u32)>, damaged: BTreeSet<(LayerId, u32)>) -> Known {
    let catalog = &state.catalog;
    let merged = catalog.fates.iter().filter_map(|(id, fate)| match fate {
        Fate::Merged(child) => Some((*id, *child)),
        Fate::Dropped => None,
    });
    let merges: BTreeMap<LayerId, LayerId> = merged.collect();
    let mut kept = damaged.clone();
    for id in merges.keys() {
        let layer = catalog.layers.get(id);
        let leaves = layer.into_iter().flat_map(|layer| layer.map.resident());
        let numbers = leaves.filter_map(|(number, ..)| u32::try_from(number).ok());
        kept.extend(numbers.map(|number| (*id, number)));
    }
    Known {
        last,
        damaged,
        merges,
        kept,
    }
}

/// Counts what lives by the leaves that are there.
fn count_anew(state: &mut State) {
    state.segments.forget_live();
    state.recount();
}

/// How much of a checkpoint is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseKind {
    Whole,
    /// Its catalogue, and the leaves that these say.
    Catalog(Known),
    Nothing,
}

/// Leaves of maps that are as a checkpoint had them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// All up to this one.
    pub last: Option<(LayerId, u32)>,
    /// Those among them that are not known.
    pub damaged: BTreeSet<(LayerId, u32)>,
    /// Layers that were being merged, and into which.
    pub merges: BTreeMap<LayerId, LayerId>,
    /// Leaves that those had not given away.
    pub kept: BTreeSet<(LayerId, u32)>,
}

impl Known {
    /// For how many pages from that one on it is the same whether they are known, and whether they are.
    pub fn span(&self, layer: LayerId, page: u64) -> (bool, u64) {
        let pages = long(LEAF_PAGES);
        let number = u32::try_from(page / pages).unwrap_or(u32::MAX);
        let mut of = layer;
        // What was given away is as well known as the leaf that it became part of.
        while let Some(into) = self.merges.get(&of)
            && !self.kept.contains(&(of, number))
        {
            of = *into;
        }
        let (is_known, span) = self.own_span(of, page);
        let leaf_end = (page / pages + 1).saturating_mul(pages);
        match self.merges.contains_key(&layer) {
            true => (is_known, span.min(leaf_end - page)),
            false => (is_known, span),
        }
    }

    fn own_span(&self, layer: LayerId, page: u64) -> (bool, u64) {
        let pages = long(LEAF_PAGES);
        let number = u32::try_from(page / pages).unwrap_or(u32::MAX);
        let leaf_end = (page / pages + 1).saturating_mul(pages);
        let Some(last) = self.last.filter(|last| (layer, number) <= *last) else {
            return (false, u64::MAX);
        };
        if self.damaged.contains(&(layer, number)) {
            return (false, leaf_end - page);
        }
        let behind = (layer, number)..=(layer, u32::MAX);
        let end = match self.damaged.range(behind).next() {
            Some((_, damaged)) => u64::from(*damaged) * pages,
            None if layer == last.0 => (u64::from(last.1) + 1) * pages,
            None => u64::MAX,
        };
        (true, end - page)
    }
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
        let mut begun: Option<(Loaded, Known)> = None;
        let mut claimed = label.checkpoint_record;
        for checkpoint in survey.checkpoints.clone() {
            let label = of(checkpoint);
            let error = match Loader::new(io, &label, drives).load().await {
                Ok(loaded) if checkpoint.0 < newest && was_given_up(&loaded, &survey) => {
                    report.note(format!("checkpoint {}", checkpoint.0), "was given up");
                    continue;
                }
                Ok(mut loaded) => {
                    let is_newest = checkpoint.0 == newest;
                    let leaves = LeafReader {
                        io,
                        label: &label,
                        drives,
                    };
                    let damaged = leaves.load_all(&mut loaded.state).await;
                    if damaged.is_empty() {
                        return Self {
                            is_claim_lost: claimed == 0 && !is_newest,
                            ..Self::of(loaded, BaseKind::Whole, survey, number, claimed)
                        };
                    }
                    let text = format!("{} parts of its maps are damaged", damaged.len());
                    report.note(format!("checkpoint {}", checkpoint.0), text);
                    if is_newest {
                        claimed = claimed.max(loaded.state.applied);
                    }
                    count_anew(&mut loaded.state);
                    let last = Some((LayerId(u32::MAX), u32::MAX));
                    let known = known(&loaded.state, last, damaged);
                    begun.get_or_insert((loaded, known));
                    continue;
                }
                Err(error) => error,
            };
            report.note(format!("checkpoint {}", checkpoint.0), error.to_string());
            let beginning = Loader::new(io, &label, drives).load_beginning().await;
            if let Some(Beginning {
                mut loaded,
                last_leaf,
            }) = beginning
            {
                if checkpoint.0 == newest {
                    claimed = claimed.max(loaded.state.applied);
                }
                let leaves = LeafReader {
                    io,
                    label: &label,
                    drives,
                };
                let damaged = leaves.load_all(&mut loaded.state).await;
                count_anew(&mut loaded.state);
                let known = known(&loaded.state, last_leaf, damaged);
                begun.get_or_insert((loaded, known));
            }
        }
        match begun {
            Some((loaded, known)) => {
                Self::of(loaded, BaseKind::Catalog(known), survey, number, claimed)
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
