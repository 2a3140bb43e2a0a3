//! Mirrors: a side that is damaged, dead, replaced or missing, and power cuts meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_volume::{Operation, Request};

use crate::PoolError;
use crate::desk::Step;
use crate::drive::SideState;
use crate::open::{Opening, open_on};
use crate::power_tests::{Scene, chosen};
use crate::testing::{Dice, Planted, Rig, Trouble, plant};

const DEGRADED: Opening = Opening {
    is_read_only: false,
    is_degraded: true,
    unopened: 0,
};

impl Scene {
    /// Fills a side of the mirror anew, on the spare drive or on its own.
    pub(crate) fn replace_side(&mut self, volume: &str) -> Option<()> {
        let present = self.pool.members.present();
        let drive = present.drives[0].clone().expect("one mirror");
        let side = drive
            .stale()
            .unwrap_or_else(|| u8::try_from(self.dice.below(2)).expect("0 or 1"));
        let spare = (0..3).find(|number| !self.members.contains(number));
        let old = drive.side(side).cloned();
        let file = match (old, spare) {
            (Some(old), _) if self.dice.once_in(2) => old,
            (_, Some(spare)) => {
                let mut after = self.members.clone();
                after.retain(|number| self.number_of(&drive, 1 - side) == Some(*number));
                after.push(spare);
                self.after = Some(after);
                Arc::new(chosen(&self.rig.disks, &[spare]).remove(0))
            }
            (Some(old), None) => old,
            (None, None) => return Some(()),
        };
        let begun = loop {
            let (pool, file) = (self.pool.clone(), file.clone());
            let begun = self
                .rig
                .run(|io| async move { pool.fill(&io, (0, side), file).await })?;
            match begun {
                Ok(Some(begun)) => break begun,
                Ok(None) => self.flush(),
                Err(_) if self.rig.disks.trouble.is_some() => return None,
                Err(error) => panic!("not filled: {error}"),
            }
        };
        let (mut rebuild, _) = begun;
        let mut waits = 0;
        loop {
            let pool = self.pool.clone();
            let (next, step) = self
                .rig
                .run(|io| async move { rebuild.step(&pool, &io).await })?;
            rebuild = next;
            match step {
                Ok(Step::Done) => break,
                Ok(Step::Did(_)) => waits = 0,
                Ok(Step::Wait) => waits += 1,
                Err(_) if self.rig.disks.trouble.is_some() => {
                    rebuild.give_up(&self.pool);
                    return None;
                }
                Err(error) => panic!("not filled: {error}"),
            }
            assert!(waits < 20, "a side is filled at last");
            if self.dice.once_in(3) {
                self.burst(volume)?;
            }
        }
        if let Some(after) = self.after.take() {
            self.members = after;
        }
        Some(())
    }

    /// The number of the drive that a side lies on.
    fn number_of(&self, drive: &crate::drive::Drive, side: u8) -> Option<usize> {
        let path = drive.side(side)?.path.clone();
        let all = chosen(&self.rig.disks, &[0, 1, 2]);
        all.iter().position(|known| known.path == path)
    }

    /// Opens a copy of the pool on these drives alone, and compares what it holds.
    fn alone(&self, numbers: &[usize], how: Opening) -> Result<(), PoolError> {
        let mut rig = Rig::new(self.rig.disks.copy(7));
        let sides = chosen(&rig.disks, numbers);
        let opened = rig.run(|io| async move { open_on(&io, sides, how).await });
        let pool = opened.expect("power")?;
        let mut scene = Scene::of(rig, pool, self.model.clone(), numbers.to_vec());
        scene.compare_degraded();
        Ok(())
    }

    /// Each current side has everything by itself.
    fn compare_each_side(&self) {
        let drive = self.pool.members.present().drives[0].clone();
        let drive = drive.expect("one mirror");
        for side in 0..2 {
            if drive.state(side) == SideState::Current
                && let Some(number) = self.number_of(&drive, side)
            {
                self.alone(&[number], DEGRADED).expect("a side");
            }
        }
    }

    /// The side of the mirror that is not current.
    fn stale(&self) -> Option<u8> {
        let drive = self.pool.members.present().drives[0].clone();
        drive.expect("one mirror").stale()
    }

    fn flush(&mut self) {
        let ended = self.execute("plain", Request::new(Operation::Flush));
        ended.expect("power").result.expect("a flush");
    }
}

fn scene(seed: u64, is_cut: bool) -> Scene {
    Scene::create_as(seed, 2, is_cut, true)
}

#[test]
fn what_was_flushed_to_a_mirror_survives_a_power_cut_and_is_on_each_side() {
    cut_mirrors(1..40);
}

#[test]
fn planted_faults_of_mirrors_are_found() {
    for fault in [Planted::MendsNothing, Planted::CopiesNothing] {
        plant(Some(fault));
        let result = std::panic::catch_unwind(|| cut_mirrors(1..80));
        plant(None);
        assert!(result.is_err(), "{fault:?}");
    }
}

/// Histories with power cuts, after which each side has everything by itself.
fn cut_mirrors(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut dice = Dice::new(seed ^ 0x5eed);
        let mut scene = scene(seed, seed % 4 != 0);
        for round in 0..3 {
            let longest = if scene.is_busy { 1600 } else { 600 };
            scene.rig.disks.left = 20 + dice.below(longest);
            while scene.step().is_some() {
                assert!(scene.rig.disks.done < 1 << 20, "a history ends");
            }
            let was_whole = scene.stale().is_none();
            scene = scene.interrupt(seed << 8 | round);
            assert!(!was_whole || scene.stale().is_none(), "seed {seed}");
            scene.compare_each_side();
        }
    }
}

#[test]
fn an_operation_that_fails_while_a_side_is_filled_loses_nothing() {
    for at in 0..150 {
        for seed in [300 + at] {
            let mut scene = scene(seed, seed % 4 != 0);
            scene.write("plain", 0, 300, true).expect("power");
            let at = scene.rig.disks.done + at;
            scene.rig.disks.trouble = Some((at, Trouble::Fails));
            while scene.rig.disks.done <= at && scene.replace_side("plain").is_some() {}
            // A pool that can be written still goes on with what it has.
            for _ in 0..2 {
                if !scene.pending.is_empty() || scene.burst("plain").is_none() {
                    break;
                }
            }
            scene.rig.disks.trouble = None;
            scene = scene.interrupt(seed);
            scene.compare_each_side();
            scene.replace_side("plain").expect("power");
            scene.flush();
            scene.interrupt(seed).compare_each_side();
        }
    }
}

#[test]
fn sides_that_went_on_without_each_other_are_not_put_together() {
    let scene = scene(2, false);
    let Scene { rig, pool, .. } = scene;
    let disks = rig.into_disks();
    drop(pool);
    let mut rig = Rig::new(disks.kill(2));
    for side in [0, 1] {
        let sides = chosen(&rig.disks, &[side]);
        let opened = rig.run(|io| async move { open_on(&io, sides, DEGRADED).await });
        let pool = opened.expect("power").expect("one side");
        let made = rig.run(|io| async move { crate::clean::checkpoint_now(&pool, &io).await });
        made.expect("power").expect("a checkpoint");
    }
    for how in [Opening::default(), DEGRADED] {
        let sides = chosen(&rig.disks, &[0, 1]);
        let opened = rig.run(|io| async move { open_on(&io, sides, how).await });
        let refused = opened.expect("power").expect_err("two histories");
        assert!(matches!(refused, PoolError::WentApart { .. }), "{refused}");
    }
    // Either one opens, as it knows that the other is stale.
    for side in [0, 1] {
        let mut rig = Rig::new(rig.disks.copy(3));
        let sides = chosen(&rig.disks, &[side]);
        let opened = rig.run(|io| async move { open_on(&io, sides, Opening::default()).await });
        opened.expect("power").expect("one side");
    }
}

#[test]
fn a_power_cut_while_a_side_is_replaced_leaves_a_pool_that_opens() {
    for left in 0..70 {
        for seed in [2 * left + left % 2] {
            let mut scene = scene(seed, true);
            scene.write("plain", 0, 300, true).expect("power");
            scene.rig.disks.left = left * 2;
            while scene.replace_side("plain").is_some() {}
            scene = scene.interrupt(seed);
            scene.compare_each_side();
            // It can be filled then.
            scene.replace_side("plain").expect("power");
            scene.flush();
            scene.interrupt(seed).compare_each_side();
        }
    }
}

#[test]
fn a_side_that_dies_is_left_out_and_nothing_is_lost() {
    for seed in 100..130 {
        let mut dice = Dice::new(seed);
        let mut scene = scene(seed, true);
        for _ in 0..dice.below(10) {
            scene.step().expect("power");
        }
        let dead = usize::try_from(dice.below(2)).expect("0 or 1");
        let dead = scene.members[dead];
        scene.rig.disks.dead = Some(dead);
        for _ in 0..8 {
            let ended = scene.burst("plain");
            ended.expect("the other side goes on");
        }
        scene.flush();
        let left: Vec<usize> = scene
            .members
            .iter()
            .copied()
            .filter(|it| *it != dead)
            .collect();
        if dice.once_in(2) {
            // The power goes before or after superblocks say so, and the drive is there again.
            scene = scene.interrupt(seed);
            scene.compare_each_side();
            continue;
        }
        // Superblocks say that the side is stale.
        let pool = scene.pool.clone();
        let made = scene
            .rig
            .run(|io| async move { crate::clean::checkpoint_now(&pool, &io).await });
        made.expect("power").expect("a checkpoint");
        scene.compare_degraded();
        scene
            .alone(&left, Opening::default())
            .expect("without the side");
        let refused = scene.alone(&[dead], Opening::default());
        assert!(
            matches!(refused, Err(PoolError::DrivesMissing { .. })),
            "{refused:?}"
        );
        // With both, the stale side is not read.
        scene
            .alone(&scene.members.clone(), Opening::default())
            .expect("both sides");
        // Another drive takes its place.
        scene.rig.disks.dead = None;
        scene.replace_side("plain").expect("power");
        scene.flush();
        scene.interrupt(seed).compare_each_side();
    }
}

#[test]
fn a_missing_side_is_told_unless_the_pool_knows_of_it() {
    let mut scene = scene(1, false);
    scene.burst("plain").expect("power");
    scene.flush();
    for side in [0, 1] {
        let refused = scene
            .alone(&[side], Opening::default())
            .expect_err("a side is missing");
        assert!(
            refused.to_string().contains("longshore pool offline"),
            "{refused}"
        );
        scene.alone(&[side], DEGRADED).expect("degraded");
    }
}

#[test]
fn damage_on_one_side_is_mended_by_reads_cleaning_and_scrubs() {
    for seed in 200..220 {
        let mut dice = Dice::new(seed);
        let mut scene = scene(seed, false);
        for _ in 0..20 {
            scene.step().expect("power");
        }
        scene.flush();
        let drive = scene.pool.members.present().drives[0].clone();
        let drive = drive.expect("one mirror");
        if drive.stale().is_some() {
            continue;
        }
        scene.compare();
        // Everything but the superblocks, in places of one side or of the other.
        let side = u8::try_from(dice.below(2)).expect("0 or 1");
        let number = scene.number_of(&drive, side).expect("there");
        scene.rig.disks.damage(number, 1 << 20..25 << 20, |bytes| {
            for block in bytes.chunks_mut(4096).step_by(2) {
                block.iter_mut().for_each(|byte| *byte ^= 0x55);
            }
        });
        if seed % 2 == 0 {
            let pool = scene.pool.clone();
            let report = scene.rig.run(|io| async move {
                let mut scrub = crate::scrub::Scrub::new(&pool);
                loop {
                    let (next, step) = scrub.step(&pool, &io).await;
                    scrub = next;
                    if step == Step::Done {
                        return scrub.report;
                    }
                }
            });
            let report = report.expect("power");
            assert!(!report.is_sound(), "it is told");
            // Now there is nothing to tell.
            scene.compare();
        } else {
            // Writes of parts of pages read the rest, and much that is written has segments cleaned.
            for _ in 0..20 {
                scene.burst("plain").expect("power");
                scene.churn("packed").expect("power");
            }
        }
        scene.compare_degraded();
        assert_eq!(drive.stale(), None, "it was written anew");
    }
}

impl Scene {
    /// A pool that was opened, and what it should hold.
    pub(crate) fn of(
        rig: Rig,
        pool: Arc<crate::Pool>,
        model: crate::power_tests::Model,
        members: Vec<usize>,
    ) -> Self {
        Self {
            rig,
            pool,
            open: BTreeMap::new(),
            model,
            dice: Dice::new(1),
            value: 0,
            pending: Vec::new(),
            is_cut: false,
            is_busy: false,
            is_write_through: false,
            is_mirror: true,
            written: BTreeMap::new(),
            members,
            after: None,
        }
    }
}
