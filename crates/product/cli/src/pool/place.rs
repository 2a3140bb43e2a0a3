//! Where a pool is: on drives that this process opens, or in a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_api::pool::{Pool as Shown, PoolChange, PoolState};
use longshore_api::problem::ProblemCode;
use longshore_daemon::config::file::ConfigFile;
use longshore_daemon::config::pool::PoolConfig;
use longshore_daemon::config::pools;
use longshore_daemon::config::problem::Problem;
use longshore_daemon::pools::ChangeError;
use longshore_pool::{Pool, PoolError, read_label};
use longshore_volume::OpenError;

use crate::server::client::ClientError;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub enum PoolVerbError {
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Config(Box<Problem>),
    #[error("there is no [[pool]] {pool} in {}; name the drives of the pool by their paths, with a `/`", path.display())]
    NotConfigured { pool: String, path: PathBuf },
    #[error(
        "{pool}: a check needs the drives of the pool: write their paths with a `/` (DRIVE+DRIVE), or name a [[pool]] \
         of --config FILE"
    )]
    NoDrives { pool: String },
    #[error(
        "pool {pool}: no server has it open, so the work would end with this program; leave out --detach"
    )]
    NoServerToDetach { pool: String },
    #[error(
        "pool {pool}: was closed before its work was seen to end; the server's log has what came of it"
    )]
    WorkUnknown { pool: String },
    #[error("{0}\nTo take the pool off its drives all the same, name all of them and add --force")]
    DoesNotOpen(PoolError),
    /// Neither a server nor this process can do it.
    #[error("{why}\nAnd no server that has it open answers: {no_server}")]
    Elsewhere {
        /// Why this process cannot.
        why: Box<PoolError>,
        no_server: ClientError,
    },
    #[error(
        "{0}\nWithout a server, name the drives of the pool by their paths, with a `/`, or add --config FILE"
    )]
    NoServer(ClientError),
}

/// Who can work with a pool.
pub enum Place {
    /// This process, which has it open.
    Here(Arc<Pool>),
    Server(Elsewhere),
}

/// A pool that a server has open.
pub struct Elsewhere {
    /// What to call it there.
    pub name: String,
    /// Why this process cannot open it; `None`: it was not tried.
    why: Option<PoolError>,
}

impl Elsewhere {
    /// Has a server that cannot help say what was tried.
    pub fn explain<T>(self, answer: Result<T, ClientError>) -> Result<T, PoolVerbError> {
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let is_no_help = match &error {
            ClientError::Refused(problem) => {
                let is_pool = problem
                    .object
                    .as_deref()
                    .is_some_and(|it| it.starts_with("pool "));
                problem.code == ProblemCode::NotFound && is_pool && problem.advice.is_some()
            }
            error => matches!(
                error,
                ClientError::Unreachable { .. } | ClientError::Socket(_)
            ),
        };
        Err(match self.why {
            Some(why) if is_no_help => PoolVerbError::Elsewhere {
                why: Box::new(why),
                no_server: error,
            },
            None if matches!(error, ClientError::Unreachable { .. }) => {
                PoolVerbError::NoServer(error)
            }
            _ => error.into(),
        })
    }
}

/// The pools of a configuration file.
pub fn configured(config: Option<&Path>) -> Result<Vec<PoolConfig>, PoolVerbError> {
    let Some(path) = config else {
        return Ok(Vec::new());
    };
    let refused = |problem| PoolVerbError::Config(Box::new(problem));
    let file = ConfigFile::load(path).map_err(refused)?;
    pools::of_file(&file).map_err(refused)
}

/// The drives of a pool as it was named; `None`: a server may know it by its name.
pub fn drives_of(
    place: &str,
    config: Option<&Path>,
) -> Result<Option<Vec<PathBuf>>, PoolVerbError> {
    if place.contains('/') {
        return Ok(Some(place.split('+').map(PathBuf::from).collect()));
    }
    let Some(path) = config else {
        return Ok(None);
    };
    let mut pools = configured(config)?.into_iter();
    let found = pools.find(|pool| pool.name == place);
    found
        .map(|pool| Some(pool.drives))
        .ok_or_else(|| PoolVerbError::NotConfigured {
            pool: place.to_owned(),
            path: path.to_owned(),
        })
}

/// How this process opens a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Reads,
    Writes,
    /// A side of a mirror may be missing; from then on the pool knows that it is stale.
    Degraded,
}

impl How {
    /// What a change needs.
    pub fn of(change: &PoolChange) -> Self {
        match change {
            PoolChange::Offline(_) => Self::Degraded,
            _ => Self::Writes,
        }
    }
}

/// Opens a pool, or tells what the server calls it that has it open.
pub fn find(place: &str, config: Option<&Path>, how: How) -> Result<Place, PoolVerbError> {
    let Some(drives) = drives_of(place, config)? else {
        return Ok(Place::Server(Elsewhere {
            name: place.to_owned(),
            why: None,
        }));
    };
    let opened = match how {
        How::Degraded => Pool::open_degraded(&drives, false),
        How::Reads | How::Writes => Pool::open(&drives, false, how == How::Reads),
    };
    match opened {
        Ok(pool) => Ok(Place::Here(pool)),
        Err(why @ PoolError::Open(OpenError::Locked { .. } | OpenError::DeviceBusy { .. })) => {
            let first = drives
                .first()
                .map(PathBuf::as_path)
                .unwrap_or(Path::new(""));
            // The first one may be the side of a mirror that is missing.
            let label = drives.iter().find_map(|drive| read_label(drive).ok());
            let label = label.map_or_else(|| read_label(first), Ok)?;
            Ok(Place::Server(Elsewhere {
                name: label.pool.to_string(),
                why: Some(why),
            }))
        }
        Err(error) => Err(error.into()),
    }
}

/// The pools that lie on these drives, as far as their labels tell.
pub fn labels(drives: &[PathBuf]) -> Result<Vec<Shown>, PoolVerbError> {
    let mut found: Vec<Shown> = Vec::new();
    for drive in drives {
        let label = read_label(drive)?;
        let uuid = Some(label.pool.to_string());
        let shown = drive.to_string_lossy().into_owned();
        match found.iter_mut().find(|pool| pool.uuid == uuid) {
            Some(pool) => pool.drives.push(shown),
            None => found.push(Shown {
                name: label.name,
                uuid,
                state: PoolState::Closed,
                drives: vec![shown],
                mirrors: Vec::new(),
                usage: None,
                volumes: Vec::new(),
                orphans: Vec::new(),
                work: None,
            }),
        }
    }
    Ok(found)
}
