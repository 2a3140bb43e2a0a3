//! Which drive of a pool each file or device is.

use std::io;
use std::sync::Arc;

use longshore_volume::Io;
use uuid::Uuid;

use crate::drive::{Drive, SideState};
use crate::error::PoolError;
use crate::format::superblock::{DriveEntry, LENGTH, Mirror, Superblock, copies, tail_start};
use crate::format::{FormatError, RESERVED_BYTES, long};
use crate::identify::{self, Labeled};
use crate::report::Report;
use crate::side::{Side, io_error};

/// How a pool is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opening {
    pub is_read_only: bool,
    /// A side of a mirror may be missing that the pool does not know to be stale.
    pub is_degraded: bool,
    /// Drives that were named, and could not be opened.
    pub unopened: usize,
}

/// The drives of a pool by their numbers; of those that were removed, nothing.
pub type Numbered = Vec<Option<Arc<Drive>>>;

/// The sides of a drive that were found, and whether they are current.
type Places = [Option<(Arc<Side>, SideState)>; 2];

/// Drives that were looked through.
pub struct Sorted {
    /// The newest superblock of all sides.
    pub label: Superblock,
    pub drives: Numbered,
    /// A side is missing that was current.
    pub has_left_out: bool,
}

/// The same of drives some of whose superblocks are damaged.
pub struct Damaged {
    pub sorted: Sorted,
    /// A superblock is whole on one of them at least.
    pub has_superblock: bool,
}

/// Finds out which drive of a pool each file or device is.
pub async fn sort(io: &Io, sides: Vec<Side>, how: Opening) -> Result<Sorted, PoolError> {
    let (found, unreadable) = read_labels(io, sides).await?;
    let label = newest_of(&found).ok_or(PoolError::DriveCount)?.clone();
    arrange(label, found, unreadable, how)
}

/// Like [`sort`], and drives without a whole superblock are identified by their segments. The report names them.
pub async fn sort_damaged(
    io: &Io,
    sides: Vec<Side>,
    how: Opening,
    report: &mut Report,
) -> Result<Damaged, PoolError> {
    let mut found: Vec<Labeled> = Vec::new();
    let mut nameless = Vec::new();
    for side in sides {
        match newest_label(io, &side).await {
            Ok(own) => {
                admit(&found, &own, &side)?;
                found.push(Labeled { own, side });
            }
            // One of a later version is whole, and what cannot be read may be.
            Err(error @ (PoolError::Io { .. } | PoolError::OutOfMemory)) => return Err(error),
            Err(error) if is_of_field(&error) => return Err(error),
            Err(error) => nameless.push((side, error)),
        }
    }
    for (side, _) in &nameless {
        report.note(side.path.display().to_string(), "has no whole superblock");
    }
    let Some(label) = newest_of(&found).cloned() else {
        let sides = nameless.into_iter().map(|(side, _)| side).collect();
        let (label, found) = identify::all(io, sides).await?;
        return Ok(Damaged {
            sorted: arrange(label, found, Vec::new(), how)?,
            has_superblock: false,
        });
    };
    let mut unreadable = Vec::new();
    for (side, error) in nameless {
        let is_taken = |number: u8| found.iter().any(|other| other.own.drive == number);
        let number = identify::one(io, &side, &label).await;
        match number.filter(|number| !is_taken(*number)) {
            Some(drive) => {
                let own = Superblock {
                    drive,
                    side: 0,
                    ..label.clone()
                };
                found.push(Labeled { own, side });
            }
            None => unreadable.push(error),
        }
    }
    Ok(Damaged {
        sorted: arrange(label, found, unreadable, how)?,
        has_superblock: true,
    })
}

/// Refuses a drive of another pool, and one that is there already.
fn admit(found: &[Labeled], own: &Superblock, side: &Side) -> Result<(), PoolError> {
    let path = || side.path.clone();
    if found.iter().any(|other| other.own.pool != own.pool) {
        return Err(PoolError::OtherPool { path: path() });
    }
    if found.iter().any(|other| own_id(&other.own) == own_id(own)) {
        return Err(PoolError::DriveTwice { path: path() });
    }
    Ok(())
}

fn arrange(
    label: Superblock,
    found: Vec<Labeled>,
    unreadable: Vec<PoolError>,
    how: Opening,
) -> Result<Sorted, PoolError> {
    let places = place_sides(found, &label)?;
    expect_all(&label, &places, unreadable, how)?;
    let has_left_out = !missing_sides(&label, &places, false).is_empty();
    let listed = label.drives.iter().zip(places);
    let numbered = listed.map(|(entry, [first, second])| {
        if entry.is_removed() {
            return None;
        }
        if entry.mirror.is_none() {
            return first.map(|(side, _)| Arc::new(Drive::single((*side).clone())));
        }
        let states = [&first, &second].map(|it| it.as_ref().map_or(SideState::Stale, |it| it.1));
        let sides = [first, second].map(|it| it.map(|(side, _)| side));
        Some(Arc::new(Drive::mirror(sides, states)))
    });
    let drives = numbered.collect();
    Ok(Sorted {
        label,
        drives,
        has_left_out,
    })
}

/// What the sides say, and why others say nothing: the pool may do without them.
async fn read_labels(
    io: &Io,
    sides: Vec<Side>,
) -> Result<(Vec<Labeled>, Vec<PoolError>), PoolError> {
    let mut found: Vec<Labeled> = Vec::new();
    let mut unreadable = Vec::new();
    for side in sides {
        let own = match newest_label(io, &side).await {
            Ok(own) => own,
            Err(error) => {
                unreadable.push(error);
                continue;
            }
        };
        admit(&found, &own, &side)?;
        found.push(Labeled { own, side });
    }
    match unreadable.pop() {
        Some(error) if found.is_empty() => Err(error),
        last => {
            unreadable.extend(last);
            Ok((found, unreadable))
        }
    }
}

fn newest_of(found: &[Labeled]) -> Option<&Superblock> {
    found.iter().map(|found| &found.own).max_by_key(|label| {
        let sides = label.drives.iter().map(|it| it.sides());
        let sides: usize = sides.map(|sides| sides.iter().flatten().count()).sum();
        // A side that calls itself stale knows nothing that the other one does not. If it was about to be filled, it may
        // name a checkpoint that was given up.
        let is_sound = own_mirror(label).is_none_or(|mirror| mirror.stale != Some(label.side));
        // A drive that was being added when the power went may be as new as the others, which do not know of it.
        (is_sound, label.number, std::cmp::Reverse(sides))
    })
}

/// The sides in the places where the newest superblock lists them.
fn place_sides(found: Vec<Labeled>, label: &Superblock) -> Result<Vec<Places>, PoolError> {
    let mut places: Vec<Places> = Vec::new();
    places.resize_with(label.drives.len(), Default::default);
    for Labeled { own, side } in found {
        let (number, place) = (usize::from(own.drive), usize::from(own.side));
        let entry = label.drives.get(number);
        let is_listed = |entry: &&DriveEntry| entry.sides().get(place) == Some(&Some(own_id(&own)));
        let said = own_mirror(&own).and_then(|mirror| mirror.stale);
        let Some(entry) = entry.filter(is_listed) else {
            // A side that was about to be filled, and was not, is stale by what it says itself.
            if said == Some(own.side) {
                tracing::warn!(
                    path = %side.path.display(),
                    "was to become a side of a mirror, and did not; it is not used"
                );
                continue;
            }
            return Err(PoolError::NotMember {
                path: side.path,
                pool: label.name.clone(),
            });
        };
        let is_stale = entry
            .mirror
            .is_some_and(|mirror| mirror.stale == Some(own.side));
        let mut state = SideState::Current;
        if is_stale {
            // It went on without the one that went on without it.
            if said == Some(1 - own.side) {
                return Err(PoolError::WentApart {
                    pool: label.name.clone(),
                    path: side.path,
                });
            }
            tracing::warn!(
                path = %side.path.display(),
                "a side of a mirror is stale, and is not used; fill it by: longshore pool replace"
            );
            state = SideState::Stale;
        } else if own.number + 1 < label.number {
            // A power cut leaves drives one superblock apart.
            return Err(PoolError::Stale { path: side.path });
        }
        let needed = RESERVED_BYTES + u64::from(entry.segments) * u64::from(label.segment_bytes);
        if tail_start(side.bytes) >= needed {
            places[number][place] = Some((Arc::new(side), state));
        } else if !is_stale {
            return Err(io_error("read", &side.path, io::ErrorKind::UnexpectedEof));
        }
    }
    Ok(places)
}

/// Refuses to go on without sides that are needed, and with drives that are not the pool's. `unreadable`: why drives that
/// were named hold none.
fn expect_all(
    label: &Superblock,
    places: &[Places],
    mut unreadable: Vec<PoolError>,
    how: Opening,
) -> Result<(), PoolError> {
    let missing = missing_sides(label, places, how.is_degraded);
    let listed = label.drives.iter().zip(places);
    let listed = listed.filter(|(entry, _)| !entry.is_removed());
    let sides = listed.flat_map(|(entry, place)| entry.sides().into_iter().zip(place));
    let sides: Vec<_> = sides.filter(|(id, _)| id.is_some()).collect();
    let absent = sides.iter().filter(|(_, there)| there.is_none()).count();
    let is_too_many = how.unopened + unreadable.len() > absent;
    let is_refused = !missing.is_empty() || is_too_many;
    match unreadable.pop() {
        Some(error) if is_refused => return Err(error),
        Some(error) => tracing::warn!(%error, "a side of a mirror is left out"),
        None => {}
    }
    if !is_refused {
        return Ok(());
    }
    // One side of each mirror is enough to go on.
    let is_mirrored = !missing.is_empty() && missing_sides(label, places, true).is_empty();
    let ids: Vec<String> = missing.iter().map(Uuid::to_string).collect();
    Err(PoolError::DrivesMissing {
        pool: label.name.clone(),
        expected: sides.len(),
        found: sides.len() - missing.len(),
        missing: ids.join(", "),
        advice: match is_mirrored {
            true => "; to go on without: longshore pool offline",
            false => "",
        },
    })
}

/// Identifiers of sides that are missing, and without which the pool is not opened.
fn missing_sides(label: &Superblock, places: &[Places], is_degraded: bool) -> Vec<Uuid> {
    let mut missing = Vec::new();
    let listed = label.drives.iter().zip(places);
    for (entry, place) in listed.filter(|(entry, _)| !entry.is_removed()) {
        let mut there = place.iter().flatten();
        let is_one_current = there.any(|(_, state)| *state == SideState::Current);
        for (number, id) in (0_u8..).zip(entry.sides()) {
            let is_there = place[usize::from(number)].is_some();
            let is_stale = entry.mirror.is_some_and(|it| it.stale == Some(number));
            let may_lack = is_one_current && (is_stale || is_degraded);
            missing.extend(id.filter(|_| !is_there && !may_lack));
        }
    }
    missing
}

/// What a superblock says of the mirror that it lies on.
fn own_mirror(label: &Superblock) -> Option<Mirror> {
    label.drives[usize::from(label.drive)].mirror
}

/// The UUID of the side that a superblock lies on.
fn own_id(label: &Superblock) -> Uuid {
    let sides = label.drives[usize::from(label.drive)].sides();
    sides[usize::from(label.side)].unwrap_or_default()
}

/// Whether a field of a superblock whose checksum is right was refused.
const fn is_of_field(damage: &PoolError) -> bool {
    matches!(
        damage,
        PoolError::Damaged {
            source: FormatError::Field(_),
            ..
        }
    )
}

pub async fn newest_label(io: &Io, side: &Side) -> Result<Superblock, PoolError> {
    let mut newest: Option<Superblock> = None;
    let mut damage = None;
    for place in copies(side.bytes).concat() {
        if place + long(LENGTH) > side.bytes {
            continue;
        }
        let bytes = match side.read_new(io, place, LENGTH).await {
            Ok(bytes) => bytes,
            Err(error) => {
                damage = damage.or_else(|| Some(side.error("read", error)));
                continue;
            }
        };
        match Superblock::decode(&bytes) {
            Ok(found) => {
                if newest
                    .as_ref()
                    .is_none_or(|newest| newest.number < found.number)
                {
                    newest = Some(found);
                }
            }
            Err(FormatError::Magic) => {}
            // A field behind a right checksum tells more than a copy that is damaged.
            Err(FormatError::Checksum | FormatError::Short(_))
                if damage.as_ref().is_some_and(is_of_field) => {}
            Err(source) => {
                damage = Some(PoolError::Damaged {
                    pool: side.path.display().to_string(),
                    what: "the superblock".into(),
                    source,
                });
            }
        }
    }
    newest.ok_or_else(|| {
        damage.unwrap_or_else(|| PoolError::NoPool {
            path: side.path.clone(),
        })
    })
}
