//! Which faults a run has, and how often. Each seed draws a profile of its own, so that some runs are
//! calm and others are not, and rare faults meet in some runs.

use crate::random::Random;
use crate::time::{MICROSECOND, MILLISECOND};

/// Mistakes that are made on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The first change exchanges two units.
    MixedUpMap,
    /// A flush succeeds and makes nothing durable.
    ForgottenFlush,
    /// What is to be read-only is not.
    ForgottenProtection,
}

/// Chances are of ten thousand, delays are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The longest ordinary delay on the network.
    pub network_delay: u64,
    /// A stream is handed over in tiny pieces.
    pub network_tiny: u64,
    /// A stream is handed over byte by byte.
    pub network_drip: u64,
    /// Bytes a socket takes before it is full.
    pub send_buffer: usize,
    /// A send takes less than there is room for.
    pub short_send: u64,
    /// An initiator stops reading for a while.
    pub reader_stops: u64,
    /// How often, on the average, a connection is cut, in nanoseconds. Zero: never.
    pub cut_every: u64,
    /// How often the server is killed. Zero: never.
    pub kill_every: u64,
    /// The longest ordinary delay of a storage operation.
    pub disk_delay: u64,
    /// A connection is told to go to another shard: looked at two thousand times a second.
    pub moves: u64,
    /// The exports change: looked at as often.
    pub changes: u64,
    /// A storage operation stalls.
    pub stall: u64,
    pub stall_time: u64,
    pub short_transfer: u64,
    /// A storage operation fails with EINTR.
    pub interrupted: u64,
    /// EIO on reads and writes.
    pub io_error: u64,
    /// A write fails with ENOSPC.
    pub no_space: u64,
    /// fdatasync, or the sync of a write, fails, and what was dirty is lost.
    pub sync_fails: u64,
    /// Reads and writes that need no sleep: cache hits.
    pub inline: u64,
    /// The medium knows no holes.
    pub no_holes: bool,
    /// The medium knows no zeroing.
    pub no_zeroing: bool,
    /// Clients of each protocol that are lied to.
    pub deceived: usize,
}

impl Profile {
    /// No faults, but ordinary delays.
    #[must_use]
    pub const fn calm() -> Self {
        Self {
            network_delay: 100 * MICROSECOND,
            network_tiny: 0,
            network_drip: 0,
            send_buffer: 1 << 20,
            short_send: 0,
            reader_stops: 0,
            cut_every: 0,
            kill_every: 0,
            disk_delay: 200 * MICROSECOND,
            moves: 1000,
            changes: 0,
            stall: 0,
            stall_time: 0,
            short_transfer: 0,
            interrupted: 0,
            io_error: 0,
            no_space: 0,
            sync_fails: 0,
            inline: 5000,
            no_holes: false,
            no_zeroing: false,
            deceived: 0,
        }
    }

    /// Clients that are lied to, beside others, on a network that splits streams.
    #[must_use]
    pub const fn lying() -> Self {
        Self {
            network_tiny: 800,
            short_send: 500,
            deceived: 2,
            ..Self::calm()
        }
    }

    /// A slow disk, and connections that break before it has answered.
    #[must_use]
    pub const fn reinstating() -> Self {
        Self {
            network_delay: 20 * MICROSECOND,
            cut_every: 3 * MILLISECOND,
            disk_delay: 500 * MICROSECOND,
            stall: 2000,
            stall_time: 20 * MILLISECOND,
            inline: 0,
            ..Self::calm()
        }
    }

    /// Connections move all the time, busy or not.
    #[must_use]
    pub const fn moving() -> Self {
        Self {
            network_delay: 20 * MICROSECOND,
            network_tiny: 800,
            short_send: 1500,
            send_buffer: 5_000,
            cut_every: 20 * MILLISECOND,
            disk_delay: 300 * MICROSECOND,
            stall: 200,
            stall_time: 5 * MILLISECOND,
            moves: 9_000,
            ..Self::calm()
        }
    }

    /// Exports change all the time, on connections that move and break, and a disk that stalls.
    #[must_use]
    pub const fn changing() -> Self {
        Self {
            changes: 2_000,
            stall: 1_000,
            ..Self::moving()
        }
    }

    /// A disk whose syncs fail now and then.
    #[must_use]
    pub const fn failing_medium() -> Self {
        Self {
            io_error: 50,
            no_space: 100,
            sync_fails: 1000,
            short_transfer: 500,
            interrupted: 500,
            kill_every: 50 * MILLISECOND,
            ..Self::calm()
        }
    }

    /// What the seed says.
    #[must_use]
    pub fn draw(random: &mut Random) -> Self {
        let mut sometimes = |value: u64| if random.chance(6000) { value } else { 0 };
        let mut profile = Self {
            network_tiny: sometimes(800),
            network_drip: sometimes(60),
            short_send: sometimes(1500),
            reader_stops: sometimes(60),
            cut_every: sometimes(60 * MILLISECOND),
            kill_every: sometimes(250 * MILLISECOND),
            stall: sometimes(200),
            short_transfer: sometimes(800),
            interrupted: sometimes(300),
            io_error: sometimes(60),
            no_space: sometimes(60),
            sync_fails: sometimes(120),
            ..Self::calm()
        };
        profile.network_delay = random.pick(&[
            20 * MICROSECOND,
            200 * MICROSECOND,
            2 * MILLISECOND,
            20 * MILLISECOND,
        ]);
        // Between two troubles there is time for a login and some commands.
        if profile.cut_every > 0 {
            profile.cut_every += 60 * profile.network_delay;
        }
        if profile.kill_every > 0 {
            profile.kill_every += 100 * profile.network_delay;
        }
        profile.send_buffer = random.pick(&[600, 5_000, 64 << 10, 1 << 20]);
        profile.disk_delay = random.pick(&[10 * MICROSECOND, 300 * MICROSECOND, 3 * MILLISECOND]);
        profile.stall_time =
            random.pick(&[20 * MILLISECOND, 200 * MILLISECOND, 2_000 * MILLISECOND]);
        profile.inline = random.pick(&[0, 3_000, 9_000]);
        profile.moves = random.pick(&[0, 300, 3_000, 9_000]);
        profile.no_holes = random.chance(2000);
        profile.no_zeroing = random.chance(2000);
        profile.changes = random.pick(&[0, 0, 100, 1000]);
        profile
    }

    /// From now on nothing goes wrong, so that what is under way can end.
    pub const fn calm_down(&mut self) {
        let calm = Self::calm();
        self.reader_stops = 0;
        self.changes = 0;
        self.cut_every = 0;
        self.kill_every = 0;
        self.stall = 0;
        self.interrupted = 0;
        self.io_error = 0;
        self.no_space = 0;
        self.sync_fails = 0;
        self.network_drip = 0;
        self.network_delay = calm.network_delay;
    }
}
