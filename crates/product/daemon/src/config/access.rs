//! Maps of volumes and access rules, as far as targets and subsystems read them alike.

use toml::Spanned;

use super::file::ConfigFile;
use super::problem::{Problem, ProblemKind};
use super::suggest;

/// The most volumes of a map: flat space addressing of logical units has 14 bits (SAM-5 §4.7.7.4), and a
/// subsystem has as many namespaces.
pub(super) const VOLUMES_MAX: u16 = 1 << 14;

/// The name of a rule for all initiators or hosts that no other rule names.
const ALL_OTHERS: &str = "*";

/// The initiators or hosts of a rule.
pub(super) struct Peers<N> {
    pub named: Vec<N>,
    /// All that no rule names.
    pub others: bool,
}

impl<N: PartialEq> Peers<N> {
    /// Reads the names of a rule.
    ///
    /// `is_taken` tells whether an earlier rule has that name, where `None` stands for all others; `twice` is
    /// the problem with it.
    pub(super) fn read(
        file: &ConfigFile,
        names: &[Spanned<String>],
        parse: impl Fn(&Spanned<String>) -> Result<N, Problem>,
        is_taken: impl Fn(Option<&N>) -> bool,
        twice: impl Fn(String) -> ProblemKind,
    ) -> Result<Self, Problem> {
        let mut peers = Self {
            named: Vec::new(),
            others: false,
        };
        for name in names {
            let peer = match name.get_ref().as_str() {
                ALL_OTHERS => None,
                _ => Some(parse(name)?),
            };
            if peers.has(peer.as_ref()) || is_taken(peer.as_ref()) {
                return Err(file.problem(name.span(), twice(name.get_ref().clone())));
            }
            match peer {
                Some(peer) => peers.named.push(peer),
                None => peers.others = true,
            }
        }
        Ok(peers)
    }

    fn has(&self, peer: Option<&N>) -> bool {
        peer.map_or(self.others, |peer| self.named.contains(peer))
    }
}

/// The index of a volume that a map names.
pub(super) fn find_volume(volumes: &[String], name: &str) -> Result<usize, ProblemKind> {
    let index = volumes.iter().position(|volume| volume == name);
    index.ok_or_else(|| {
        let known: Vec<&str> = volumes.iter().map(String::as_str).collect();
        ProblemKind::UnknownVolume {
            volume: name.to_owned(),
            suggestion: suggest::sentence(name, &known),
        }
    })
}

/// Numbers all volumes in order, from 0.
pub(super) fn all_volumes(
    volumes: usize,
) -> Result<impl Iterator<Item = (u16, usize)>, ProblemKind> {
    if volumes > usize::from(VOLUMES_MAX) {
        return Err(ProblemKind::TooManyVolumes(volumes));
    }
    Ok((0..VOLUMES_MAX).zip(0..volumes))
}
