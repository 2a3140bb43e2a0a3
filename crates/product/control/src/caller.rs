//! Who calls, and what they may do.
//!
//! | way | who | role |
//! |---|---|---|
//! | Unix socket | root, the user of the server | admin |
//! | | members of the group `longshore` | operate |
//! | | others | none |
//! | TCP | bearer of a token | that of the token |
//! | | browser with a cookie of the dashboard | that of who asked for its log-in |

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use longshore_api::access::Role;
use longshore_api::change::Caller;
use nix::unistd::{Gid, Group, Uid, User};

use crate::logins::LoginKey;
use crate::places::Admission;

/// Members of it may operate.
const GROUP: &str = "longshore";

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    Unix {
        uid: u32,
        /// `None`: this user may nothing.
        role: Option<Role>,
        socket: Arc<PathBuf>,
    },
    Tcp {
        address: SocketAddr,
        /// Where it was accepted.
        local: SocketAddr,
        admission: Arc<Admission>,
    },
}

/// A request's caller, once it is known.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub caller: Caller,
    pub role: Role,
    pub grant: Grant,
}

/// What the role comes from.
#[derive(Clone, Debug)]
pub(crate) enum Grant {
    /// What the kernel says of the socket's other end.
    Socket,
    /// The token of this SHA-256.
    Token(String),
    /// The log-in of a browser, by its cookie.
    Login(LoginKey),
}

impl Peer {
    /// Root, or the user of the server.
    pub(crate) const fn of_owner(uid: u32, socket: Arc<PathBuf>) -> Self {
        Self::Unix {
            uid,
            role: Some(Role::Admin),
            socket,
        }
    }

    /// A user who may nothing.
    pub(crate) const fn of_nobody(uid: u32, socket: Arc<PathBuf>) -> Self {
        Self::Unix {
            uid,
            role: None,
            socket,
        }
    }

    /// Another user. Looks the groups up, which may block.
    pub(crate) fn of_user(uid: u32, gid: u32, socket: Arc<PathBuf>) -> Self {
        Self::Unix {
            uid,
            role: role_of_user(uid, gid),
            socket,
        }
    }

    /// Where it comes from.
    pub(crate) fn from(&self) -> String {
        match self {
            Self::Unix { socket, .. } => socket.display().to_string(),
            Self::Tcp { address, .. } => address.to_string(),
        }
    }
}

/// Whether it is root or the user of the server. Asks nobody.
pub(crate) fn is_owner(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

fn role_of_user(uid: u32, gid: u32) -> Option<Role> {
    let group = Group::from_name(GROUP).ok().flatten()?;
    let is_member = group.gid == Gid::from_raw(gid)
        || User::from_uid(Uid::from_raw(uid))
            .ok()
            .flatten()
            .is_some_and(|user| user.gid == group.gid || group.mem.contains(&user.name));
    is_member.then_some(Role::Operate)
}
