//! File descriptors: every connection takes one, and every volume of a file or device.
//!
//! The limit a process is started with is usually 1,024, for the sake of programs that use `select`.
//! This one does not, so it raises its own limit as far as it may and as the configured limits need.

use std::collections::BTreeSet;

use longshore_pool::PoolOptions;
use longshore_remote::RemoteSpec;
use longshore_server::config::PeerLimits;
use longshore_volume::VolumeSpec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For listeners, event loops, and what libraries open.
const BESIDE_CONNECTIONS: usize = 256;

/// Connections that a remote volume is counted with where nothing is said.
const REMOTE_CONNECTIONS: usize = 4;

/// Connections of an NVMe controller that are counted on: its admin queue, and an I/O queue for each core
/// of a host of middle size. Hosts ask for more only where they have more cores.
const CONNECTIONS_PER_CONTROLLER: usize = 9;

/// File descriptors of these volumes: one for each file, device and drive of a pool, and one for each connection of a
/// remote volume.
#[must_use]
pub fn of_volumes<'a>(specs: impl Iterator<Item = &'a VolumeSpec>) -> usize {
    let mut drives = BTreeSet::new();
    let mut count = 0;
    for spec in specs {
        if let Some(pool) = spec.options::<PoolOptions>() {
            drives.extend(&pool.drives);
        }
        count += match spec.options::<RemoteSpec>() {
            Some(remote) => remote.queues.map_or(REMOTE_CONNECTIONS, usize::from),
            None => usize::from(spec.path.is_some()),
        };
    }
    count + drives.len()
}

/// Makes room for as many connections as `limits` allow, beside so many descriptors of volumes. Says so where there is
/// not enough.
pub fn make_room(limits: &PeerLimits, volumes: usize) {
    let io_queues = usize::from(limits.nvme_io_queues);
    let per_controller = CONNECTIONS_PER_CONTROLLER.min(io_queues.saturating_add(1));
    let wanted = limits
        .sessions
        .saturating_add(limits.pending_logins)
        .saturating_add(limits.controllers.saturating_mul(per_controller))
        .saturating_add(BESIDE_CONNECTIONS)
        .saturating_add(volumes);
    let least = u64::try_from(volumes.saturating_add(BESIDE_CONNECTIONS)).unwrap_or(u64::MAX);
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
    let now = getrlimit(Resource::Nofile);
    let Some(raised) = raised(&now, wanted) else {
        return;
    };
    let allowed = raised.current.unwrap_or(u64::MAX);
    let outcome = setrlimit(Resource::Nofile, raised);
    if let Err(error) = outcome {
        tracing::warn!(
            "cannot raise the limit of open files: {error}; raise it before the start \
             (ulimit -n, LimitNOFILE=)"
        );
    } else if allowed < least {
        tracing::warn!(
            "the limit of {allowed} open files is too low for volumes that take {volumes}, and {BESIDE_CONNECTIONS} \
             beside them: raise the hard limit to {wanted} or more (LimitNOFILE= of the unit, ulimit -Hn, \
             /etc/security/limits.conf), or serve fewer files"
        );
    } else if allowed < wanted {
        tracing::info!(
            "the limit of {allowed} open files is too low for the limits of {} sessions, {} \
             controllers and {} logins at a time; raise it (ulimit -n, LimitNOFILE=), or lower \
             them",
            limits.sessions,
            limits.controllers,
            limits.pending_logins
        );
    }
}

/// A limit with room for `wanted`, as far as the hard limit goes; `None` when there is room already.
fn raised(now: &Rlimit, wanted: u64) -> Option<Rlimit> {
    let current = now.current?;
    let allowed = now.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    (current < wanted).then_some(Rlimit {
        current: Some(allowed.max(current)),
        maximum: now.maximum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(current: Option<u64>, maximum: Option<u64>) -> Rlimit {
        Rlimit { current, maximum }
    }

    #[test]
    fn the_soft_limit_is_raised_as_far_as_needed_and_allowed() {
        let current = |now, wanted| raised(&now, wanted).map(|limit| limit.current);
        assert_eq!(current(limit(Some(1024), None), 5000), Some(Some(5000)));
        assert_eq!(
            current(limit(Some(1024), Some(4096)), 5000),
            Some(Some(4096))
        );
        assert_eq!(current(limit(Some(1024), Some(4096)), 1000), None);
        assert_eq!(current(limit(None, None), 5000), None);
    }

    #[test]
    fn files_devices_and_connections_of_volumes_are_counted() {
        use longshore_volume::BackendName;

        let file = |name: &str| VolumeSpec {
            path: Some("/srv/a.img".into()),
            ..VolumeSpec::new(name, BackendName::FILE)
        };
        let memory = VolumeSpec::new("m", BackendName::MEM);
        let specs = [file("a"), memory, file("b")];
        assert_eq!(of_volumes(specs.iter()), 2);
    }

    #[test]
    fn room_for_all_connections_is_made() {
        let limits = PeerLimits {
            sessions: 300,
            pending_logins: 20,
            controllers: 10,
            nvme_io_queues: 1,
            ..PeerLimits::default()
        };
        let before = getrlimit(Resource::Nofile);
        let lowered = limit(Some(400), before.maximum);
        setrlimit(Resource::Nofile, lowered).unwrap();
        make_room(&limits, 10);
        let after = getrlimit(Resource::Nofile).current;
        setrlimit(Resource::Nofile, before).unwrap();
        assert_eq!(after, Some(606));
    }
}
