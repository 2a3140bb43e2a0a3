//! The thread `control`: accepts connections and answers their requests.

use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::app::{App, Parts, TcpPlace};
use crate::call_pool::{CallPool, CallPools};
use crate::caller::{Peer, is_owner};
use crate::listen::Socket;
use crate::openapi;
use crate::places::{Admission, Places, STRANGER_TIMEOUT};
use crate::routes::router;
use crate::tls::Tls;

/// So long the head of a request may take, and the handshake of TLS.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// What a connection that brought no token in time gets to end its request.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// Of the thread, and of those for what may block.
const STACK_BYTES: usize = 512 << 10;
/// So long accepting pauses when the process has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Where requests come from.
#[derive(Debug, Default)]
pub struct Listeners {
    pub tcp: Option<TcpListener>,
    /// Certificate and key for `tcp`.
    pub tls: Option<Tls>,
    pub unix: Option<Socket>,
}

/// The API while it is served. It ends when this is dropped.
#[derive(Debug)]
pub struct ControlServer {
    stop: Option<watch::Sender<bool>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ControlServer {
    /// Begins to answer.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start(listeners: Listeners, parts: Parts) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(CallPools::THREADS)
            .thread_name("control-work")
            .thread_stack_size(STACK_BYTES)
            .build()?;
        let address = listeners.tcp.as_ref().and_then(|it| it.local_addr().ok());
        let tcp = address.map(|address| TcpPlace {
            address,
            is_encrypted: listeners.tls.is_some(),
        });
        let app = App::new(parts, openapi::document()?, tcp);
        let thread = thread::Builder::new()
            .name("control".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                runtime.block_on(serve(listeners, app, stopped));
                // A call that blocks holds up nothing.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listeners: Listeners, app: Arc<App>, mut stopped: watch::Receiver<bool>) {
    let router = router(&app);
    let places = Arc::new(Places::new());
    // Removed when serving ends.
    let _file = listeners.unix.map(|socket| {
        let Socket { listener, file } = socket;
        let path = Arc::new(file.path.clone());
        let (router, places) = (router.clone(), Arc::clone(&places));
        let users = app.pools.users.clone();
        tokio::spawn(accept_unix(listener, path, router, places, users));
        file
    });
    if let Some(listener) = listeners.tcp {
        let tls = listeners.tls.map(Arc::new);
        tokio::spawn(accept_tcp(listener, tls, router, places));
    }
    // The sender goes when the server ends.
    while stopped.changed().await.is_ok() {}
}

async fn accept_unix(
    listener: std::os::unix::net::UnixListener,
    path: Arc<PathBuf>,
    router: Router,
    places: Arc<Places>,
    users: CallPool,
) {
    let listener = match tokio::net::UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("API: cannot accept on {}: {error}", path.display()),
    };
    while let Some(owner) = places.owner().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                pause(&error).await;
                continue;
            }
        };
        let Ok(credentials) = stream.peer_cred() else {
            continue;
        };
        let (uid, gid) = (credentials.uid(), credentials.gid());
        let is_owner = is_owner(uid);
        let place = match is_owner {
            true => Some(owner),
            false => places.other(),
        };
        let Some(place) = place else {
            tracing::debug!(uid, "API: too many connections of other users");
            continue;
        };
        let (router, path, users) = (router.clone(), Arc::clone(&path), users.clone());
        tokio::spawn(async move {
            let peer = match is_owner {
                true => Peer::of_owner(uid, path),
                false => user(&users, (uid, gid), path).await,
            };
            answer(stream, peer, router, None).await;
            drop(place);
        });
    }
}

/// Another user. One who cannot be looked up in time may nothing.
async fn user(users: &CallPool, (uid, gid): (u32, u32), path: Arc<PathBuf>) -> Peer {
    let socket = Arc::clone(&path);
    let found = users.run(move || Peer::of_user(uid, gid, socket));
    match tokio::time::timeout(HEAD_TIMEOUT, found).await {
        Ok(Ok(peer)) => peer,
        Ok(Err(_)) | Err(_) => {
            tracing::warn!(uid, "API: the groups of a user cannot be looked up in time");
            Peer::of_nobody(uid, path)
        }
    }
}

async fn accept_tcp(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    router: Router,
    places: Arc<Places>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("API: cannot accept: {error}"),
    };
    while let Some(admission) = places.stranger().await {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                pause(&error).await;
                continue;
            }
        };
        let accepted = Instant::now();
        let Ok(local) = stream.local_addr() else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (router, tls) = (router.clone(), tls.clone());
        tokio::spawn(async move {
            let peer = Peer::Tcp {
                address,
                local,
                admission: Arc::clone(&admission),
            };
            let stranger = Some((&*admission, accepted));
            match tls {
                None => answer(stream, peer, router, stranger).await,
                Some(tls) => {
                    let handshake = tls.acceptor().accept(stream);
                    match tokio::time::timeout(STRANGER_TIMEOUT, handshake).await {
                        Ok(Ok(stream)) => answer(stream, peer, router, stranger).await,
                        Ok(Err(error)) => tracing::debug!(%address, "API: TLS: {error}"),
                        Err(_) => tracing::debug!(%address, "API: TLS: no handshake in time"),
                    }
                }
            }
        });
    }
}

async fn pause(error: &io::Error) {
    tracing::warn!("API: cannot accept a connection: {error}");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Answers the requests of a connection until it ends. A stranger's ends when it brings no token in time.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    stranger: Option<(&Admission, Instant)>,
) {
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        router.clone().oneshot(request.map(axum::body::Body::new))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(64)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let overdue = async {
        match stranger {
            Some((admission, accepted)) => admission.overdue(accepted).await,
            None => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = overdue => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(LAST_ANSWER, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!("API: a connection ended: {error}");
    }
}
