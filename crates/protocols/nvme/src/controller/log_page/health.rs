//! SMART / Health Information log page (NVMe base 2.0 §5.16.1.3).
//!
//! ```text
//!   0 critical warning   1 temperature   3 available spare   4 threshold   5 percentage used
//!  32 data units read (16)      48 data units written (16)   64 host reads (16)
//!  80 host writes (16)          96 busy minutes (16)        112 power cycles (16)
//! 128 power on hours (16)      144 unsafe shutdowns (16)    160 media errors (16)
//! 176 error log entries (16)                                                  of 512
//! ```

use crate::command::NamespaceId;
use crate::controller::admin_command::Request;
use crate::controller::environment::Environment;
use crate::controller::environment::{Health, Statistics};
use crate::controller::failure::Failure;
use crate::controller::namespace::AttachedNamespace;
use crate::controller::state::{Controller, State};

const PAGE_BYTES: usize = 512;

/// Data units are thousands of 512 bytes, rounded up.
const DATA_UNIT_BYTES: u64 = 512_000;
const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// Critical Warning, bit 0: less of the spare is left than the threshold says.
const SPARE_LOW: u8 = 1 << 0;
/// Critical Warning, bit 2: reliability is degraded.
const RELIABILITY_DEGRADED: u8 = 1 << 2;
const READ_ONLY: u8 = 1 << 3;

impl Controller {
    pub(super) fn health_log(&self, state: &State, request: &Request) -> Result<Vec<u8>, Failure> {
        let environment = request.environment;
        let id = request.entry.namespace();
        let of = if id == NamespaceId::NONE || id == NamespaceId::BROADCAST {
            self.namespaces()
        } else {
            [self.named(id)?].into()
        };
        let statistics = add_up(&of, environment);
        let mut page = vec![0; PAGE_BYTES];
        let health = of.iter().map(|ns| environment.health(ns.index));
        let health: Vec<Health> = health.collect();
        page[0] = critical_warning(&health);
        // Temperature is not measured: 0. The spare is the room that is left for thin volumes.
        let spare = health.iter().map(|one| one.spare_percent()).min();
        page[3] = spare.unwrap_or(100);
        page[4] = Health::SPARE_THRESHOLD;
        let mut put = |at: usize, value: u64| {
            page[at..at + 8].copy_from_slice(&value.to_le_bytes());
        };
        put(32, statistics.read_bytes.div_ceil(DATA_UNIT_BYTES));
        put(48, statistics.written_bytes.div_ceil(DATA_UNIT_BYTES));
        put(64, statistics.read_commands);
        put(80, statistics.write_commands);
        put(96, statistics.busy_ms / MINUTE_MS);
        put(112, 1);
        put(128, environment.uptime_ms() / HOUR_MS);
        put(160, statistics.media_errors);
        put(176, state.errors.count());
        Ok(page)
    }
}

fn add_up(namespaces: &[AttachedNamespace], environment: &dyn Environment) -> Statistics {
    let each = namespaces.iter().map(|ns| environment.statistics(ns.index));
    each.fold(Statistics::default(), |sum, one| Statistics {
        read_bytes: sum.read_bytes.saturating_add(one.read_bytes),
        written_bytes: sum.written_bytes.saturating_add(one.written_bytes),
        read_commands: sum.read_commands.saturating_add(one.read_commands),
        write_commands: sum.write_commands.saturating_add(one.write_commands),
        busy_ms: sum.busy_ms.max(one.busy_ms),
        media_errors: sum.media_errors.saturating_add(one.media_errors),
    })
}

/// A failure of one namespace degrades the whole; read-only it is when nothing can be written.
fn critical_warning(health: &[Health]) -> u8 {
    let mut warning = 0;
    if health.iter().any(|one| one.lacks_spare()) {
        warning |= SPARE_LOW;
    }
    if health.iter().any(|one| one.degraded || one.read_only) {
        warning |= RELIABILITY_DEGRADED;
    }
    if !health.is_empty() && health.iter().all(|one| one.read_only) {
        warning |= READ_ONLY;
    }
    warning
}
