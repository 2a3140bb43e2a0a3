//! Fuzz targets as plain functions of bytes.
//!
//! Each target is run in two ways: by libFuzzer, with coverage (`cargo xtask fuzz`, programs in
//! `libfuzzer/`), and by the test of this crate on seeded random bytes, so that where libFuzzer
//! cannot be built the targets still run. A target panics when a promise is broken: decoders and
//! machines never panic on input, do bounded work, and hold bounded memory.
#![forbid(unsafe_code)]

mod change;
mod codecs;
mod config;
mod device;
mod input;
mod migration;
mod nvme;
mod pool;
mod scst;
mod sessions;
mod structured;

/// A target takes any bytes and panics if something is wrong.
pub type Target = fn(&[u8]);

/// All targets by name; `libfuzzer/` has one program for each.
pub const TARGETS: &[(&str, Target)] = &[
    ("headers", codecs::headers),
    ("texts", codecs::texts),
    ("stored_reservations", codecs::stored_reservations),
    ("login_bytes", sessions::login_bytes),
    ("session_pdus", sessions::session_pdus),
    ("initiator_bytes", sessions::initiator_bytes),
    ("device_commands", device::device_commands),
    ("login_conversations", structured::login_conversations),
    ("pdu_sequences", structured::pdu_sequences),
    ("initiator_sequences", structured::initiator_sequences),
    ("device_sequences", structured::device_sequences),
    ("persistent_reserve_out", structured::persistent_reserve_out),
    ("nvme_headers", nvme::nvme_headers),
    ("nvme_target_bytes", nvme::nvme_target_bytes),
    ("nvme_target_sequences", nvme::nvme_target_sequences),
    ("nvme_host_sequences", nvme::nvme_host_sequences),
    ("nvme_authentication", nvme::nvme_authentication),
    ("nvme_admin_commands", nvme::nvme_admin_commands),
    ("nvme_io_commands", nvme::nvme_io_commands),
    ("nvme_server", nvme::nvme_server),
    ("config_file", config::config_file),
    ("volume_argument", config::volume_argument),
    ("change_documents", change::change_documents),
    ("imports", migration::imports),
    ("scst_writes", scst::scst_writes),
    ("pool_formats", pool::pool_formats),
];

/// Finds a target by name.
///
/// # Panics
/// When there is none of that name.
pub fn target(name: &str) -> Target {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no target {name:?}")).1
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longshore_tests::random::Random;

    use super::*;

    /// Inputs for each target; a second or two in all.
    const INPUTS: u64 = 3_000;

    #[test]
    fn no_target_is_broken_by_random_bytes() {
        let seed = std::env::var("LONGSHORE_SEED")
            .map_or_else(|_| Random::seed_from_clock(), |text| text.parse().unwrap());
        println!("LONGSHORE_SEED={seed}");
        let mut random = Random::new(seed);
        for (name, target) in TARGETS {
            println!("{name}");
            for _ in 0..INPUTS {
                let length = usize::try_from(random.below(600)).unwrap();
                let mut input = vec![0; length];
                random.fill(&mut input);
                // Long runs of small numbers reach further than noise does.
                if random.below(2) == 0 {
                    input.iter_mut().for_each(|byte| *byte &= 0x1f);
                }
                target(&input);
            }
        }
    }

    /// A good input with some bytes changed, added or taken away reaches further than noise does.
    #[test]
    fn no_target_is_broken_by_changes_of_its_corpus() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        let mut random = Random::new(1);
        let mut below = move |limit: usize| {
            usize::try_from(random.below(u64::try_from(limit).unwrap())).unwrap()
        };
        for (name, target) in TARGETS {
            let Ok(entries) = std::fs::read_dir(corpus.join(name)) else {
                continue;
            };
            let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            for path in paths {
                let seed = std::fs::read(path).unwrap();
                for _ in 0..INPUTS / 20 {
                    let mut input = seed.clone();
                    for _ in 0..=below(8) {
                        let at = below(input.len() + 1);
                        let limit = [4, 16, 256][below(3)];
                        let byte = u8::try_from(below(limit)).unwrap();
                        match below(4) {
                            0 => input.insert(at, byte),
                            1 if at < input.len() => drop(input.remove(at)),
                            2 => input.extend_from_within(..at),
                            _ if at < input.len() => input[at] = byte,
                            _ => {}
                        }
                    }
                    input.truncate(4000);
                    target(&input);
                }
            }
        }
    }

    #[test]
    fn no_target_is_broken_by_what_broke_it_before() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        for (name, target) in TARGETS {
            let Ok(entries) = std::fs::read_dir(corpus.join(name)) else {
                continue;
            };
            for entry in entries {
                target(&std::fs::read(entry.unwrap().path()).unwrap());
            }
        }
    }

    #[test]
    fn each_target_has_a_program() {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("libfuzzer/fuzz_targets");
        for (name, _) in TARGETS {
            assert!(
                programs.join(format!("{name}.rs")).is_file(),
                "{name} has no program"
            );
        }
    }
}
