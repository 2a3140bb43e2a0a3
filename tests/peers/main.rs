//! The initiator library against servers: Debian's tgt, LIO and nvmet of Linux, and ours.
//!
//! Each test is one fact about one peer: `tgt::reads_return_what_was_written`. `cargo xtask peers` starts
//! tgt, and a guest with LIO and nvmet, and passes their addresses in the environment
//! ([`peer`]). A peer whose address is missing shows as one test that is skipped; ours is always there.
//!
//! Facts of one peer run one after the other, since they share its volumes; those of different peers
//! at the same time.

mod ana;
mod attaching;
mod commands;
mod cuts;
mod data;
mod discovery;
mod load;
mod pattern;
mod peer;
mod probing;
mod recovery;

use std::process::ExitCode;
use std::sync::{Arc, PoisonError};

use libtest_mimic::{Arguments, Trial};
use peer::{Absent, Peer};

/// One thing that is to be true of every peer it applies to.
pub struct Fact {
    name: &'static str,
    applies: fn(&Peer) -> bool,
    check: fn(&Peer),
}

impl Fact {
    /// A fact about all peers.
    const fn of_all(name: &'static str, check: fn(&Peer)) -> Self {
        Self::of(|_| true, name, check)
    }

    /// A fact about the peers that have what it needs.
    const fn of(applies: fn(&Peer) -> bool, name: &'static str, check: fn(&Peer)) -> Self {
        Self {
            name,
            applies,
            check,
        }
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let (peers, absent) = peer::all();
    // Each peer is busy with one fact at a time.
    arguments.test_threads.get_or_insert(peers.len());
    let facts = [
        attaching::FACTS,
        discovery::FACTS,
        data::FACTS,
        commands::FACTS,
        recovery::FACTS,
        ana::FACTS,
        cuts::FACTS,
        probing::FACTS,
    ];
    let mut trials: Vec<Trial> = absent.iter().map(skipped).collect();
    let part = part();
    // Neighbours in the list are of different peers, so that threads do not wait for one another.
    for (number, fact) in facts.into_iter().flatten().enumerate() {
        let has_turn =
            |peer: usize| part.is_none_or(|(part, parts)| (number + peer) % parts == part);
        let peers = peers.iter().enumerate();
        let chosen = peers.filter(|(peer, _)| has_turn(*peer));
        trials.extend(chosen.filter_map(|(_, peer)| trial(fact, peer)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// `LONGSHORE_PEER_FACTS=1/4` asks for the second of four parts of the facts: each has facts about all peers, and
/// each fact is in it for some peer.
fn part() -> Option<(usize, usize)> {
    let text = std::env::var("LONGSHORE_PEER_FACTS").ok()?;
    let (part, parts) = text.split_once('/').expect("LONGSHORE_PEER_FACTS=N/PARTS");
    let number = |text: &str| text.parse().expect("a number");
    Some((number(part), number(parts)))
}

fn trial(fact: &'static Fact, peer: &Arc<Peer>) -> Option<Trial> {
    (fact.applies)(peer).then(|| {
        let name = format!("{}::{}", peer.name, fact.name);
        let peer = Arc::clone(peer);
        Trial::test(name, move || {
            // A fact that failed has poisoned it; the others can still be true.
            let _turn = peer.turn.lock().unwrap_or_else(PoisonError::into_inner);
            (fact.check)(&peer);
            Ok(())
        })
    })
}

/// What the run shows for a peer that is not there. Who runs it all the same does not see it pass.
fn skipped(absent: &Absent) -> Trial {
    let name = format!(
        "{}::(no {}; `cargo xtask peers`)",
        absent.peer, absent.variable
    );
    let why = format!("{} does not say where {} is", absent.variable, absent.peer);
    Trial::test(name, || Err(why.into())).with_ignored_flag(true)
}
