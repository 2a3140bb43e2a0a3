//! `longshore pool`

pub mod changes;
mod check;
mod follow;
mod place;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use longshore_api::envelope::{Listing, Versioned};
use longshore_api::pool::{
    NewPoolClone, NewPoolDrive, NewPoolSnapshot, NewPoolVolume, Pool as Shown, PoolChange,
    PoolDriveRemoval, PoolEnd, PoolOffline, PoolRebuild, PoolResize, PoolScrub, PoolState,
    PoolVolumeSettings, PoolWorkState, SnapshotId,
};
use longshore_daemon::config::pool::{Compression, Quota, Reserve};
use longshore_daemon::config::size::Size;
use longshore_daemon::pools;
use longshore_pool::{NewPool, Pool, Rebuild, wipe_drives};
use serde::Serialize;
use serde_json::Value;

use self::check::FINDINGS;
use self::place::{How, Place, PoolVerbError, drives_of};
use crate::server::ServerArguments;
use crate::server::client::{Ask, Client, ClientError};
use crate::server::path::path;

#[derive(Debug, Args)]
pub struct PoolArguments {
    #[command(flatten)]
    server: ServerArguments,

    /// Take the drives of pools from their tables in this configuration file
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,

    #[command(subcommand)]
    verb: PoolVerb,
}

#[derive(Debug, Subcommand)]
enum PoolVerb {
    /// Make a pool on files and devices
    Create {
        /// Name of the pool
        name: String,
        /// Files and devices that it is to lie on
        #[arg(value_name = "DRIVE", required = true)]
        drives: Vec<PathBuf>,
        /// Make files that do not exist, with this size each
        #[arg(long, value_parser = size)]
        size: Option<Size>,
        /// Make mirrors: the first and second drive hold the same, the third and fourth, and so on
        #[arg(long)]
        mirror: bool,
        /// Bypass the page cache (O_DIRECT)
        #[arg(long)]
        direct: bool,
        /// Overwrite what the drives hold
        #[arg(long)]
        force: bool,
    },
    /// List pools: on these drives, of --config, or of the running server
    List {
        #[arg(value_name = "DRIVE")]
        drives: Vec<PathBuf>,
    },
    /// Show the space, volumes and snapshots of a pool
    Show {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
    },
    /// Check a pool that no process has open. Nothing is written without --rebuild
    Check {
        /// All drives of the pool (DRIVE+DRIVE), or its name in --config
        pool: String,
        /// Read all data, and compare it with its checksums
        #[arg(long)]
        data: bool,
        /// Reconstruct a pool that does not open, and write it if nothing is lost
        #[arg(long)]
        rebuild: bool,
        /// Write the reconstructed pool even if data is lost
        #[arg(long, requires = "rebuild")]
        force: bool,
    },
    /// Read all data of a pool, also of one that is served, and compare it with its checksums
    Scrub {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        /// Bytes to read in a second at most, such as 100M
        #[arg(long, value_name = "SIZE", value_parser = size)]
        rate: Option<Size>,
        /// Begin, and do not wait for the end; only in a running server
        #[arg(long)]
        detach: bool,
    },
    /// Add a drive to a pool, also to one that is served
    Add {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        /// File or device to add
        drive: PathBuf,
        /// Another file or device, which is to hold the same
        #[arg(long, value_name = "DRIVE")]
        mirror: Option<PathBuf>,
        /// Make a file that does not exist, with this size
        #[arg(long, value_parser = size)]
        size: Option<Size>,
        /// Overwrite what the drive holds
        #[arg(long)]
        force: bool,
    },
    /// Move the data of a drive to the others, and take it out of the pool
    Remove {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        /// File or device to take out
        drive: PathBuf,
        /// Bytes to move in a second at most, such as 100M
        #[arg(long, value_name = "SIZE", value_parser = size)]
        rate: Option<Size>,
        /// Begin, and do not wait for the end; only in a running server
        #[arg(long)]
        detach: bool,
    },
    /// Make a drive a mirror: fill another one with what it holds, also while the pool is served
    Attach {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        /// File or device of the pool
        drive: PathBuf,
        /// File or device that is to hold the same
        new: PathBuf,
        #[command(flatten)]
        filling: Filling,
    },
    /// Fill a stale side of a mirror again, or another drive in its place, also while the pool is served
    Replace {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        /// Side of a mirror that has failed, is missing or was left out
        drive: PathBuf,
        /// File or device for its place [default: the same]
        new: Option<PathBuf>,
        #[command(flatten)]
        filling: Filling,
    },
    /// Go on without a side of a mirror, also when it is missing and the pool does not open
    Offline {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        /// File or device to leave out
        drive: PathBuf,
    },
    /// Stop a scrub, the removal of a drive or the rebuild of a mirror in a running server
    Stop {
        /// Name of the pool
        pool: String,
    },
    /// End a pool that is not in use: its drives hold it no more
    Destroy {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        /// Lose volumes and snapshots; also end a pool that does not open
        #[arg(long)]
        force: bool,
    },
    /// Create, change and delete volumes of a pool
    #[command(subcommand)]
    Volume(VolumeVerb),
    /// Create, delete, restore, clone and compare snapshots
    #[command(subcommand)]
    Snapshot(SnapshotVerb),
}

/// How a side of a mirror is filled.
#[derive(Debug, Args)]
struct Filling {
    /// Make a file that does not exist, with this size
    #[arg(long, value_parser = size)]
    size: Option<Size>,
    /// Overwrite what the new drive holds
    #[arg(long)]
    force: bool,
    /// Bytes to copy in a second at most, such as 100M
    #[arg(long, value_name = "SIZE", value_parser = size)]
    rate: Option<Size>,
    /// Begin, and do not wait for the end; only in a running server
    #[arg(long)]
    detach: bool,
}

impl Filling {
    fn wanted(&self, drive: &Path, new: &Path) -> PoolRebuild {
        PoolRebuild {
            path: whole(drive),
            with: whole(new),
            size_bytes: self.size.map(|size| size.0),
            force: self.force,
            rate_bytes: self.rate.map(|rate| rate.0),
        }
    }
}

#[derive(Debug, Subcommand)]
enum VolumeVerb {
    /// Make a volume in a pool
    Create {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        name: String,
        /// Its size, such as 10G; space is taken when it is written
        #[arg(value_parser = size)]
        size: Size,
        /// Bytes of a block: 512 or 4096
        #[arg(long, value_name = "BYTES", default_value = "512")]
        block_size: u32,
        /// Whether and how data is compressed
        #[arg(long, value_name = "none|lz4|zstd", default_value = "none")]
        compression: Compression,
        /// Bytes that it and its snapshots may take
        #[arg(long, value_name = "SIZE", value_parser = size)]
        quota: Option<Size>,
        /// Keep space for it: for all that it can hold, or so much
        #[arg(long, value_name = "full|SIZE")]
        reserve: Option<Reserve>,
    },
    /// Change settings of a volume, also while it is served
    ///
    /// What is in the configuration file is applied when the volume is opened; change it there, too.
    Set {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        name: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Change the size of a volume that is not served
    Resize {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        name: String,
        #[arg(value_parser = size)]
        size: Size,
        /// Allow a smaller size: what lies behind is lost
        #[arg(long)]
        shrink: bool,
    },
    /// Delete a volume that is not served, with its data; snapshots stay
    Delete {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        name: String,
    },
}

/// What changes; at least one of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Settings {
    /// How data is kept that is written from now on; what is there stays as it is
    #[arg(long, value_name = "none|lz4|zstd")]
    compression: Option<Compression>,
    /// Bytes that it and its snapshots may take
    #[arg(long, value_name = "none|SIZE")]
    quota: Option<Quota>,
    /// Space that is kept for it
    #[arg(long, value_name = "none|full|SIZE")]
    reserve: Option<Reserve>,
}

impl Settings {
    fn wanted(&self) -> PoolVolumeSettings {
        PoolVolumeSettings {
            compression: self
                .compression
                .map(|it| Compression::word(it.0).to_owned()),
            quota_bytes: self.quota.map(|quota| quota.0),
            reserve: self.reserve.map(Reserve::word),
        }
    }
}

#[derive(Debug, Subcommand)]
enum SnapshotVerb {
    #[command(flatten)]
    Change(SnapshotChange),
    /// Print where a snapshot differs from an older one
    Diff {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        #[arg(value_name = "VOLUME@SNAPSHOT", value_parser = snapshot)]
        snapshot: SnapshotId,
        /// The older snapshot, of this volume or another one of the pool
        #[arg(long, value_name = "VOLUME@SNAPSHOT", value_parser = snapshot)]
        since: SnapshotId,
    },
}

#[derive(Debug, Subcommand)]
enum SnapshotChange {
    /// Make a snapshot of one or several volumes, at one moment
    Create {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        /// Name of the snapshot
        name: String,
        #[arg(value_name = "VOLUME", required = true)]
        volumes: Vec<String>,
    },
    /// Delete a snapshot that is not served
    Delete {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        #[arg(value_name = "VOLUME@SNAPSHOT", value_parser = snapshot)]
        snapshot: SnapshotId,
    },
    /// Have a volume that is not served hold what its snapshot holds; what was written since is lost
    Rollback {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        #[arg(value_name = "VOLUME@SNAPSHOT", value_parser = snapshot)]
        snapshot: SnapshotId,
    },
    /// Make a volume of a snapshot; both share what neither changes
    Clone {
        /// All drives of the pool (DRIVE+DRIVE), or its name
        pool: String,
        #[arg(value_name = "VOLUME@SNAPSHOT", value_parser = snapshot)]
        snapshot: SnapshotId,
        /// Name of the new volume
        name: String,
    },
}

fn size(text: &str) -> Result<Size, String> {
    Size::parse(text).map_err(|error| error.to_string())
}

fn snapshot(text: &str) -> Result<SnapshotId, String> {
    SnapshotId::parse(text).ok_or_else(|| "write VOLUME@SNAPSHOT, such as disk0@monday".to_owned())
}

pub fn run(arguments: &PoolArguments) -> ExitCode {
    act(arguments).unwrap_or_else(|error| crate::exit::fail(&error))
}

fn act(arguments: &PoolArguments) -> Result<ExitCode, PoolVerbError> {
    match &arguments.verb {
        PoolVerb::Create {
            name,
            drives,
            size,
            mirror,
            direct,
            force,
        } => create(
            arguments,
            NewPool {
                name: name.clone(),
                drives: drives.clone(),
                size: size.map(|size| size.0),
                is_mirrored: *mirror,
                is_direct: *direct,
                force: *force,
            },
        ),
        PoolVerb::List { drives } => list(arguments, drives),
        PoolVerb::Show { pool } => show(arguments, pool),
        PoolVerb::Check {
            pool,
            data,
            rebuild,
            force,
        } => {
            let wanted = match (rebuild, force) {
                (false, _) => Rebuild::Look,
                (true, false) => Rebuild::Whole,
                (true, true) => Rebuild::Rest,
            };
            let config = arguments.config.as_deref();
            check::run(&arguments.server, config, pool, *data, wanted)
        }
        PoolVerb::Scrub { pool, rate, detach } => {
            let rate_bytes = rate.map(|rate| rate.0);
            let wanted = PoolChange::Scrub(PoolScrub { rate_bytes });
            begin(arguments, pool, &wanted, *detach)
        }
        PoolVerb::Add {
            pool,
            drive,
            mirror,
            size,
            force,
        } => {
            let new = NewPoolDrive {
                path: whole(drive),
                mirror: mirror.as_deref().map(whole),
                size_bytes: size.map(|size| size.0),
                force: *force,
            };
            change(arguments, pool, &PoolChange::AddDrive(new))
        }
        PoolVerb::Remove {
            pool,
            drive,
            rate,
            detach,
        } => {
            let wanted = PoolChange::RemoveDrive(PoolDriveRemoval {
                path: whole(drive),
                rate_bytes: rate.map(|rate| rate.0),
            });
            begin(arguments, pool, &wanted, *detach)
        }
        PoolVerb::Attach {
            pool,
            drive,
            new,
            filling,
        } => {
            let wanted = PoolChange::Attach(filling.wanted(drive, new));
            begin(arguments, pool, &wanted, filling.detach)
        }
        PoolVerb::Replace {
            pool,
            drive,
            new,
            filling,
        } => {
            let new = new.as_ref().unwrap_or(drive);
            let wanted = PoolChange::Replace(filling.wanted(drive, new));
            begin(arguments, pool, &wanted, filling.detach)
        }
        PoolVerb::Offline { pool, drive } => {
            let path = whole(drive);
            change(arguments, pool, &PoolChange::Offline(PoolOffline { path }))
        }
        PoolVerb::Stop { pool } => change(arguments, pool, &PoolChange::Stop),
        PoolVerb::Destroy { pool, force } => destroy(arguments, pool, *force),
        PoolVerb::Volume(verb) => {
            let (pool, wanted) = verb.change();
            change(arguments, pool, &wanted)
        }
        PoolVerb::Snapshot(SnapshotVerb::Diff {
            pool,
            snapshot,
            since,
        }) => {
            let config = arguments.config.as_deref();
            changes::diff(&arguments.server, config, pool, snapshot, since)
        }
        PoolVerb::Snapshot(SnapshotVerb::Change(verb)) => {
            let (pool, wanted) = verb.change();
            change(arguments, pool, &wanted)
        }
    }
}

impl VolumeVerb {
    /// The pool, and what is to change there.
    fn change(&self) -> (&str, PoolChange) {
        match self {
            Self::Create {
                pool,
                name,
                size,
                block_size,
                compression,
                quota,
                reserve,
            } => {
                let new = NewPoolVolume {
                    name: name.clone(),
                    size_bytes: size.0,
                    block_size: Some(*block_size),
                    compression: Some(Compression::word(compression.0).to_owned()),
                    quota_bytes: quota.map(|quota| quota.0),
                    reserve: reserve.map(Reserve::word),
                };
                (pool, PoolChange::CreateVolume(new))
            }
            Self::Resize {
                pool,
                name,
                size,
                shrink,
            } => {
                let to = PoolResize {
                    size_bytes: size.0,
                    shrink: *shrink,
                };
                let volume = name.clone();
                (pool, PoolChange::Resize { volume, to })
            }
            Self::Set {
                pool,
                name,
                settings,
            } => {
                let volume = name.clone();
                let to = settings.wanted();
                (pool, PoolChange::Set { volume, to })
            }
            Self::Delete { pool, name } => {
                let volume = name.clone();
                (pool, PoolChange::DeleteVolume { volume })
            }
        }
    }
}

impl SnapshotChange {
    /// The pool, and what is to change there.
    fn change(&self) -> (&str, PoolChange) {
        match self {
            Self::Create {
                pool,
                name,
                volumes,
            } => {
                let new = NewPoolSnapshot {
                    name: name.clone(),
                    volumes: volumes.clone(),
                };
                (pool, PoolChange::Snapshot(new))
            }
            Self::Delete { pool, snapshot } => (pool, PoolChange::DeleteSnapshot(snapshot.clone())),
            Self::Rollback { pool, snapshot } => (pool, PoolChange::RollBack(snapshot.clone())),
            Self::Clone {
                pool,
                snapshot,
                name,
            } => {
                let of = snapshot.clone();
                let name = name.clone();
                (pool, PoolChange::Clone { of, name })
            }
        }
    }
}

fn create(arguments: &PoolArguments, new: NewPool) -> Result<ExitCode, PoolVerbError> {
    let pool = Pool::create(&new)?;
    let shown = closed(pools::describe(&pool));
    pool.close()?;
    Ok(print(arguments, &shown))
}

fn list(arguments: &PoolArguments, drives: &[PathBuf]) -> Result<ExitCode, PoolVerbError> {
    let print = |listing: &Listing<Shown>| {
        let server = &arguments.server;
        server.print(listing, |listing| text::table(&listing.items))
    };
    if drives.is_empty() && arguments.config.is_none() {
        let pools: Listing<Shown> = arguments.server.client()?.get(&path(&["pools"]))?.read()?;
        return Ok(print(&pools));
    }
    let mut listed = place::labels(drives)?;
    for pool in place::configured(arguments.config.as_deref())? {
        if drives.is_empty() {
            listed.extend(place::labels(&pool.drives)?);
        }
    }
    Ok(print(&Listing::new(listed)))
}

fn show(arguments: &PoolArguments, pool: &str) -> Result<ExitCode, PoolVerbError> {
    let shown = match place::find(pool, arguments.config.as_deref(), How::Reads)? {
        Place::Here(pool) => closed(pools::describe(&pool)),
        Place::Server(elsewhere) => {
            let client = arguments.server.client()?;
            let answer = client.get(&path(&["pools", &elsewhere.name]));
            elsewhere.explain(answer)?.read::<Versioned<Shown>>()?.body
        }
    };
    Ok(print(arguments, &shown))
}

/// A server was started elsewhere, and finds the drive by its whole path.
fn whole(drive: &Path) -> String {
    let path = std::path::absolute(drive).unwrap_or_else(|_| drive.to_owned());
    path.to_string_lossy().into_owned()
}

fn destroy(arguments: &PoolArguments, pool: &str, force: bool) -> Result<ExitCode, PoolVerbError> {
    let destroyed = change(arguments, pool, &PoolChange::Destroy(PoolEnd { force }));
    match destroyed {
        // What does not open has no volumes to be counted.
        Err(PoolVerbError::Pool(error)) if error.is_damage() => {
            let drives = drives_of(pool, arguments.config.as_deref())?;
            match drives.filter(|_| force) {
                Some(drives) => {
                    wipe_drives(&drives)?;
                    Ok(ExitCode::SUCCESS)
                }
                None => Err(PoolVerbError::DoesNotOpen(error)),
            }
        }
        result => result,
    }
}

/// Begins work that takes its time, and waits for its end.
fn begin(
    arguments: &PoolArguments,
    pool: &str,
    change: &PoolChange,
    detach: bool,
) -> Result<ExitCode, PoolVerbError> {
    let shown = match place::find(pool, arguments.config.as_deref(), How::of(change))? {
        Place::Here(pool) if detach => {
            return Err(PoolVerbError::NoServerToDetach {
                pool: pool.name().to_owned(),
            });
        }
        Place::Here(pool) => {
            pools::carry_out(&pool, change)?;
            let followed = follow::follow(|| Ok(pools::describe(&pool)));
            let closed_well = pool.close();
            let shown = closed(followed?);
            // Why the work failed is told first.
            if shown
                .work
                .as_ref()
                .is_some_and(|work| work.state == PoolWorkState::Done)
            {
                closed_well?;
            }
            shown
        }
        Place::Server(elsewhere) => {
            let client = arguments.server.client()?;
            let name = elsewhere.name.clone();
            let asked = ask(&client, &name, change);
            let begun = elsewhere.explain(asked)?;
            if detach {
                return Ok(print(arguments, &begun));
            }
            follow::follow(|| {
                let answer = client.get(&path(&["pools", &name]))?;
                Ok(answer.read::<Versioned<Shown>>()?.body)
            })?
        }
    };
    let printed = print(arguments, &shown);
    Ok(match &shown.work {
        Some(work) if work.state != PoolWorkState::Done => ExitCode::FAILURE,
        Some(work) if !work.findings.is_empty() => ExitCode::from(FINDINGS),
        Some(_) => printed,
        None => {
            return Err(PoolVerbError::WorkUnknown { pool: shown.name });
        }
    })
}

fn change(
    arguments: &PoolArguments,
    pool: &str,
    change: &PoolChange,
) -> Result<ExitCode, PoolVerbError> {
    let shown = match place::find(pool, arguments.config.as_deref(), How::of(change))? {
        Place::Here(pool) => {
            let changed = pools::carry_out(&pool, change);
            let closed_well = match pool.is_destroyed() {
                true => Ok(()),
                false => pool.close(),
            };
            changed?;
            closed_well?;
            closed(pools::describe(&pool))
        }
        Place::Server(elsewhere) => {
            let client = arguments.server.client()?;
            let asked = ask(&client, &elsewhere.name, change);
            elsewhere.explain(asked)?
        }
    };
    Ok(match arguments.server.output {
        crate::output::OutputFormat::Json => print(arguments, &shown),
        crate::output::OutputFormat::Text => ExitCode::SUCCESS,
    })
}

/// Has the server that has the pool open change it.
fn ask(client: &Client, pool: &str, change: &PoolChange) -> Result<Shown, ClientError> {
    let snapshot = |snapshot: &SnapshotId, action: &str| {
        path(&["pools", pool, "snapshots", &format!("{snapshot}{action}")])
    };
    let action = |action: &str| path(&["pools", &format!("{pool}:{action}")]);
    let (method, path, body) = match change {
        PoolChange::CreateVolume(new) => ("POST", path(&["pools", pool, "volumes"]), value(new)),
        PoolChange::Resize { volume, to } => {
            let place = format!("{volume}:resize");
            ("POST", path(&["pools", pool, "volumes", &place]), value(to))
        }
        PoolChange::Set { volume, to } => {
            let place = format!("{volume}:set");
            ("POST", path(&["pools", pool, "volumes", &place]), value(to))
        }
        PoolChange::DeleteVolume { volume } => {
            ("DELETE", path(&["pools", pool, "volumes", volume]), None)
        }
        PoolChange::Snapshot(new) => ("POST", path(&["pools", pool, "snapshots"]), value(new)),
        PoolChange::DeleteSnapshot(of) => ("DELETE", snapshot(of, ""), None),
        PoolChange::RollBack(to) => ("POST", snapshot(to, ":rollback"), None),
        PoolChange::AddDrive(new) => ("POST", path(&["pools", pool, "drives"]), value(new)),
        PoolChange::RemoveDrive(of) => ("POST", action("remove-drive"), value(of)),
        PoolChange::Attach(of) => ("POST", action("attach"), value(of)),
        PoolChange::Replace(of) => ("POST", action("replace"), value(of)),
        PoolChange::Offline(of) => ("POST", action("offline"), value(of)),
        PoolChange::Scrub(how) => ("POST", action("scrub"), value(how)),
        PoolChange::Stop => ("POST", action("stop"), None),
        PoolChange::Destroy(end) => ("POST", action("destroy"), value(end)),
        PoolChange::Clone { of, name } => {
            let name = name.clone();
            (
                "POST",
                snapshot(of, ":clone"),
                value(&NewPoolClone { name }),
            )
        }
    };
    let answer = client.ask(Ask {
        method,
        path,
        body,
        ..Ask::default()
    })?;
    Ok(answer.read::<Versioned<Shown>>()?.body)
}

fn value(body: &impl Serialize) -> Option<Value> {
    serde_json::to_value(body).ok()
}

/// A pool that this process alone had open.
fn closed(mut shown: Shown) -> Shown {
    if shown.state == PoolState::Open {
        shown.state = PoolState::Closed;
    }
    shown
}

fn print(arguments: &PoolArguments, shown: &Shown) -> ExitCode {
    let versioned = Versioned::new(shown);
    arguments
        .server
        .print(&versioned, |it| text::detail(it.body))
}
