//! Pools: their volumes and snapshots.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::routing::{delete, get, post};
use longshore_api::access::Role;
use longshore_api::envelope::{Listing, Versioned};
use longshore_api::pool::{
    NewPoolClone, NewPoolDrive, NewPoolSnapshot, NewPoolVolume, Pool, PoolChange, PoolChanges,
    PoolDriveRemoval, PoolEnd, PoolOffline, PoolRebuild, PoolResize, PoolScrub, PoolVolumeSettings,
    SnapshotId,
};
use longshore_api::problem::{Problem, ProblemCode};
use serde::de::DeserializeOwned;

use crate::answer::{Answer, Failure, document, list};
use crate::app::App;
use crate::caller::Known;
use crate::input::{Body, Input, bad_request, parse, query};
use crate::route::{Content, Mount, Route, of};

const POOL: &str = "/api/v1/pools/{name}";
const DRIVES: &str = "/api/v1/pools/{name}/drives";
const VOLUMES: &str = "/api/v1/pools/{name}/volumes";
const VOLUME: &str = "/api/v1/pools/{name}/volumes/{volume}";
const SNAPSHOTS: &str = "/api/v1/pools/{name}/snapshots";
const SNAPSHOT: &str = "/api/v1/pools/{name}/snapshots/{snapshot}";

const CHANGES: &str = "/api/v1/pools/{name}/snapshots/{snapshot}/changes";

pub(crate) fn routes() -> Vec<Route> {
    let the_pool = Content::Json(of::<Versioned<Pool>>);
    let admin = Some(Role::Admin);
    vec![
        Route::new(
            "GET",
            "/api/v1/pools",
            "listPools",
            "Pools that are open, and those of the file",
            App::READ,
            Content::Json(of::<Listing<Pool>>),
            get(pools),
        ),
        Route::new(
            "GET",
            POOL,
            "getPool",
            "A pool, by its name or UUID, with its volumes and snapshots",
            App::READ,
            the_pool,
            get(pool),
        ),
        Route {
            body: Some(of::<NewPoolDrive>),
            ..Route::new(
                "POST",
                DRIVES,
                "addPoolDrive",
                "Add a drive to a pool. Write it into the configuration, too",
                admin,
                the_pool,
                post(add_drive),
            )
        },
        Route {
            body: Some(of::<PoolDriveRemoval>),
            ..Route::new(
                "POST",
                "/api/v1/pools/{name}:remove-drive",
                "removePoolDrive",
                "Begin to move the data of a drive to the others, and to take it out. `work` tells how far it is",
                admin,
                the_pool,
                None,
            )
        },
        Route {
            body: Some(of::<PoolRebuild>),
            ..Route::new(
                "POST",
                "/api/v1/pools/{name}:attach",
                "attachPoolDrive",
                "Begin to fill a second side of a drive, which makes it a mirror. `work` tells how far it is",
                admin,
                the_pool,
                None,
            )
        },
        Route {
            body: Some(of::<PoolRebuild>),
            ..Route::new(
                "POST",
                "/api/v1/pools/{name}:replace",
                "replacePoolDrive",
                "Begin to fill a side of a mirror that is stale, or another drive in its place. `work` tells how far it is",
                admin,
                the_pool,
                None,
            )
        },
        Route {
            body: Some(of::<PoolOffline>),
            ..Route::new(
                "POST",
                "/api/v1/pools/{name}:offline",
                "leaveOutPoolDrive",
                "Go on without a side of a mirror",
                admin,
                the_pool,
                None,
            )
        },
        Route {
            body: Some(of::<PoolScrub>),
            ..Route::new(
                "POST",
                "/api/v1/pools/{name}:scrub",
                "scrubPool",
                "Begin to read all data, and to compare it with its checksums. `work` tells how far it is",
                admin,
                the_pool,
                None,
            )
        },
        Route::new(
            "POST",
            "/api/v1/pools/{name}:stop",
            "stopPoolWork",
            "Have a scrub, the removal of a drive or the rebuild of a mirror end",
            admin,
            the_pool,
            None,
        ),
        Route {
            body: Some(of::<PoolEnd>),
            ..Route::new(
                "POST",
                "/api/v1/pools/{name}:destroy",
                "destroyPool",
                "End a pool that is not in use. Its drives hold it no more",
                admin,
                the_pool,
                None,
            )
        },
        Route {
            body: Some(of::<NewPoolVolume>),
            ..Route::new(
                "POST",
                VOLUMES,
                "createPoolVolume",
                "Make a volume in a pool. It is not served yet",
                admin,
                the_pool,
                post(create_volume),
            )
        },
        Route::new(
            "DELETE",
            VOLUME,
            "deletePoolVolume",
            "Delete a volume that is not served, with its data. Its snapshots stay",
            admin,
            the_pool,
            delete(delete_volume),
        ),
        Route {
            body: Some(of::<PoolResize>),
            ..Route::new(
                "POST",
                "/api/v1/pools/{name}/volumes/{volume}:resize",
                "resizePoolVolume",
                "Change the size of a volume that is not served",
                admin,
                the_pool,
                None,
            )
        },
        Route {
            body: Some(of::<PoolVolumeSettings>),
            ..Route::new(
                "POST",
                "/api/v1/pools/{name}/volumes/{volume}:set",
                "setPoolVolume",
                "Change compression, quota or reserved space of a volume, also while it is served",
                admin,
                the_pool,
                None,
            )
        },
        Route {
            body: Some(of::<NewPoolSnapshot>),
            ..Route::new(
                "POST",
                SNAPSHOTS,
                "createPoolSnapshot",
                "Make a snapshot of one or several volumes, at one moment",
                admin,
                the_pool,
                post(create_snapshot),
            )
        },
        Route::new(
            "DELETE",
            SNAPSHOT,
            "deletePoolSnapshot",
            "Delete a snapshot (`VOLUME@NAME`)",
            admin,
            the_pool,
            delete(delete_snapshot),
        ),
        Route {
            query: &[
                ("since", "The older snapshot (`VOLUME@NAME`)"),
                (
                    "from",
                    "The byte to begin with: `next` of the answer before",
                ),
            ],
            ..Route::new(
                "GET",
                CHANGES,
                "getPoolChanges",
                "Where a snapshot (`VOLUME@NAME`) holds something else than an older one",
                App::READ,
                Content::Json(of::<Versioned<PoolChanges>>),
                get(changes),
            )
        },
        Route::new(
            "POST",
            "/api/v1/pools/{name}/snapshots/{snapshot}:rollback",
            "rollbackPoolSnapshot",
            "Have a volume that is not served hold what its snapshot holds",
            admin,
            the_pool,
            None,
        ),
        Route {
            body: Some(of::<NewPoolClone>),
            ..Route::new(
                "POST",
                "/api/v1/pools/{name}/snapshots/{snapshot}:clone",
                "clonePoolSnapshot",
                "Make a volume of a snapshot",
                admin,
                the_pool,
                None,
            )
        },
    ]
}

pub(crate) fn mounts() -> Vec<Mount> {
    vec![
        Mount {
            path: POOL,
            handler: post(act_on_pool),
        },
        Mount {
            path: VOLUME,
            handler: post(act_on_volume),
        },
        Mount {
            path: SNAPSHOT,
            handler: post(act_on_snapshot),
        },
    ]
}

async fn pools(State(app): State<Arc<App>>) -> Answer {
    Ok(list(app.read(|app| app.plane.pools()).await?))
}

async fn pool(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer {
    // It may have to be opened.
    let plane = Arc::clone(&app.plane);
    let pool = app.pools.plans.run(move || plane.pool(&name));
    Ok(document(pool.await??))
}

async fn changes(
    State(app): State<Arc<App>>,
    Path((name, snapshot)): Path<(String, String)>,
    RawQuery(raw): RawQuery,
) -> Answer {
    let of = snapshot_id(&snapshot)?;
    let (mut since, mut from) = (None, 0);
    for (option, value) in query(raw.as_deref().unwrap_or_default()) {
        match option.as_str() {
            "since" => since = Some(snapshot_id(&value)?),
            "from" => {
                from = value
                    .parse()
                    .map_err(|_| bad_request("from is no number"))?
            }
            _ => return Err(bad_request("use ?since and ?from")),
        }
    }
    let since = since.ok_or_else(|| bad_request("name the older snapshot by ?since"))?;
    let plane = Arc::clone(&app.plane);
    let found = app
        .pools
        .plans
        .run(move || plane.pool_changes(&name, &of, &since, from));
    Ok(document(found.await??))
}

async fn change(app: &Arc<App>, known: Known, name: String, change: PoolChange) -> Answer {
    let own = Arc::clone(app);
    let changed = app.pools.changes.run(move || {
        let step = format!("pool {name}: {change}");
        own.audited(&known.caller, &step, || {
            own.plane.change_pool(&name, &change, &known.caller)
        })
    });
    Ok(document(changed.await??))
}

async fn add_drive(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    Path(name): Path<String>,
    Input(new): Input<NewPoolDrive>,
) -> Answer {
    change(&app, known, name, PoolChange::AddDrive(new)).await
}

async fn act_on_pool(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    Path(place): Path<String>,
    Body(body): Body,
) -> Answer {
    let (name, wanted) = match place.rsplit_once(':') {
        Some((name, "remove-drive")) => (name, PoolChange::RemoveDrive(parse(&body)?)),
        Some((name, "attach")) => (name, PoolChange::Attach(parse(&body)?)),
        Some((name, "replace")) => (name, PoolChange::Replace(parse(&body)?)),
        Some((name, "offline")) => (name, PoolChange::Offline(parse(&body)?)),
        Some((name, "scrub")) => (name, PoolChange::Scrub(parse_or_default(&body)?)),
        Some((name, "stop")) => (name, PoolChange::Stop),
        Some((name, "destroy")) => (name, PoolChange::Destroy(parse_or_default(&body)?)),
        _ => return Err(no_action("a pool")),
    };
    change(&app, known, name.to_owned(), wanted).await
}

/// Without a body everything is as it is usually.
fn parse_or_default<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, Failure> {
    match body {
        [] => Ok(T::default()),
        body => parse(body),
    }
}

async fn create_volume(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    Path(name): Path<String>,
    Input(new): Input<NewPoolVolume>,
) -> Answer {
    change(&app, known, name, PoolChange::CreateVolume(new)).await
}

async fn delete_volume(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    Path((name, volume)): Path<(String, String)>,
) -> Answer {
    change(&app, known, name, PoolChange::DeleteVolume { volume }).await
}

async fn act_on_volume(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    Path((name, place)): Path<(String, String)>,
    Body(body): Body,
) -> Answer {
    let wanted = match place.rsplit_once(':') {
        Some((volume, "resize")) => PoolChange::Resize {
            volume: volume.to_owned(),
            to: parse(&body)?,
        },
        Some((volume, "set")) => PoolChange::Set {
            volume: volume.to_owned(),
            to: parse(&body)?,
        },
        _ => return Err(no_action("a volume of a pool")),
    };
    change(&app, known, name, wanted).await
}

async fn create_snapshot(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    Path(name): Path<String>,
    Input(new): Input<NewPoolSnapshot>,
) -> Answer {
    change(&app, known, name, PoolChange::Snapshot(new)).await
}

async fn delete_snapshot(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    Path((name, snapshot)): Path<(String, String)>,
) -> Answer {
    let snapshot = snapshot_id(&snapshot)?;
    change(&app, known, name, PoolChange::DeleteSnapshot(snapshot)).await
}

async fn act_on_snapshot(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    Path((name, place)): Path<(String, String)>,
    Body(body): Body,
) -> Answer {
    let wanted = match place.rsplit_once(':') {
        Some((snapshot, "rollback")) => PoolChange::RollBack(snapshot_id(snapshot)?),
        Some((snapshot, "clone")) => {
            let NewPoolClone { name } = parse(&body)?;
            let of = snapshot_id(snapshot)?;
            PoolChange::Clone { of, name }
        }
        _ => return Err(no_action("a snapshot")),
    };
    change(&app, known, name, wanted).await
}

fn snapshot_id(text: &str) -> Result<SnapshotId, Failure> {
    SnapshotId::parse(text).ok_or_else(|| bad_request(format!("`{text}` is not VOLUME@SNAPSHOT")))
}

fn no_action(what: &str) -> Failure {
    let title = format!("{what} has no such action");
    let problem = Problem::new(ProblemCode::NotFound, title);
    problem.advise("see /openapi.json for what there is").into()
}
