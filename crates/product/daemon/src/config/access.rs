//! Maps of volumes and access rules, as far as targets and subsystems read them alike.

use std::collections::HashMap;

use longshore_wire::pattern::NamePattern;
use toml::Spanned;

use super::file::ConfigFile;
use super::numbers::VOLUMES_MAX;
use super::problem::{Problem, ProblemKind};
use super::suggest;

/// The name of a rule for all initiators or hosts that no other rule names.
pub(super) const ALL_OTHERS: &str = "*";

/// The initiators or hosts of a rule.
pub(super) struct Peers<N> {
    pub named: Vec<NamePattern<N>>,
    /// All that no rule names.
    pub others: bool,
}

/// What earlier rules say.
pub(super) struct EarlierRules<'a, N> {
    pub named: Vec<&'a NamePattern<N>>,
    /// One of them is for all others.
    pub others: bool,
}

/// The problem with a name that comes too late.
pub(super) type TooLate = fn(String) -> ProblemKind;

impl<N: AsRef<str> + PartialEq> Peers<N> {
    /// Reads the names of a rule. `twice` is the problem with a name that is there already.
    ///
    /// A name or pattern that another one before it covers would never decide anything.
    pub(super) fn read(
        file: &ConfigFile,
        names: &[Spanned<String>],
        parse: impl Fn(&Spanned<String>) -> Result<NamePattern<N>, Problem>,
        earlier: &EarlierRules<'_, N>,
        twice: TooLate,
    ) -> Result<Self, Problem> {
        let mut peers = Self {
            named: Vec::new(),
            others: false,
        };
        for name in names {
            let text = name.get_ref();
            let at = |kind| file.problem(name.span(), kind);
            if text == ALL_OTHERS {
                if peers.others || earlier.others {
                    return Err(at(twice(text.clone())));
                }
                peers.others = true;
                continue;
            }
            let peer = parse(name)?;
            if matches!(&peer, NamePattern::Pattern(pattern) if pattern.is_all_wild()) {
                return Err(at(ProblemKind::PatternForAll(text.clone())));
            }
            let mut before = earlier.named.iter().copied().chain(&peers.named);
            if let Some(other) = before.find(|other| other.covers(&peer)) {
                return Err(at(if *other == peer {
                    twice(text.clone())
                } else {
                    ProblemKind::NeverReached {
                        name: text.clone(),
                        pattern: other.as_str().to_owned(),
                    }
                }));
            }
            peers.named.push(peer);
        }
        Ok(peers)
    }
}

/// The volumes that maps can name.
#[derive(Debug, Default)]
pub(super) struct VolumeNames {
    names: Vec<String>,
    places: HashMap<String, usize>,
    /// The first so many belong to the file and the command line: maps that name no volume have these.
    numbered: usize,
}

impl VolumeNames {
    /// Adds one; the first of a name keeps it.
    pub(super) fn add(&mut self, name: &str) {
        self.places
            .entry(name.to_owned())
            .or_insert(self.names.len());
        self.names.push(name.to_owned());
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// Volumes that are added from here on are in no map that does not name them.
    pub(super) fn number_these(&mut self) {
        self.numbered = self.names.len();
    }

    /// The name of a volume by its index.
    pub(super) fn name(&self, index: usize) -> &str {
        &self.names[index]
    }

    /// The index of a volume that a map names.
    pub(super) fn find(&self, name: &str) -> Result<usize, ProblemKind> {
        self.places.get(name).copied().ok_or_else(|| {
            let known: Vec<&str> = self.names.iter().map(String::as_str).collect();
            ProblemKind::UnknownVolume {
                volume: name.to_owned(),
                suggestion: suggest::sentence(name, &known),
            }
        })
    }

    /// Volumes of the file and the command line in order, numbered from 0.
    pub(super) fn in_order(&self) -> Result<impl Iterator<Item = (u16, usize)>, ProblemKind> {
        let volumes = self.numbered;
        if volumes > usize::from(VOLUMES_MAX) {
            return Err(ProblemKind::TooManyVolumes(volumes));
        }
        Ok((0..VOLUMES_MAX).zip(0..volumes))
    }
}
