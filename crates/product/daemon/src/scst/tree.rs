//! Answers to the kernel.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use longshore_api::change::Caller;
use longshore_scst::node::{File, Node};
use longshore_scst::state::State;
use longshore_scst::write::COMMAND_MAX;
use rustix::fs::OFlags;

use super::nodes::Nodes;
use super::source::Source;
use crate::threads::CHANGE_STACK_BYTES;

/// What a file says it has, as in sysfs.
const FILE_BYTES: u64 = 4096;

/// For how long the kernel may know directories that never go.
const LASTING: Duration = Duration::from_secs(1);

/// Writes that wait for those before.
const WRITES_MAX: usize = 64;

/// Names of a directory with their numbers and kinds, as they were when it was opened.
type Names = Arc<[(String, FileType)]>;

#[derive(Clone)]
enum Open {
    Text(Arc<str>),
    Names(Names),
}

struct Write {
    file: File,
    bytes: Vec<u8>,
    caller: Caller,
    reply: ReplyWrite,
}

pub(super) struct Tree {
    source: Arc<Source>,
    nodes: Mutex<Nodes>,
    open: Mutex<HashMap<u64, Open>>,
    next_handle: AtomicU64,
    writes: SyncSender<Write>,
    uid: u32,
    gid: u32,
    started: SystemTime,
}

impl Tree {
    /// With a thread for writes, which ends with the tree.
    pub(super) fn new(source: Arc<Source>) -> io::Result<Self> {
        let (writes, inbox) = sync_channel(WRITES_MAX);
        let writer = Arc::clone(&source);
        thread::Builder::new()
            .name("scst-change".to_owned())
            .stack_size(CHANGE_STACK_BYTES)
            .spawn(move || carry_out(&writer, &inbox))?;
        Ok(Self {
            source,
            nodes: Mutex::default(),
            open: Mutex::default(),
            next_handle: AtomicU64::new(1),
            writes,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            started: SystemTime::now(),
        })
    }

    fn node(&self, number: INodeNo) -> Option<Node> {
        locked(&self.nodes).get(number.0).cloned()
    }

    fn attributes(&self, number: u64, node: &Node, state: &State) -> FileAttr {
        let (kind, perm, size, nlink) = match node {
            Node::Directory(_) => (FileType::Directory, 0o755, 0, 2),
            Node::File(file) => (FileType::RegularFile, file.mode(state), FILE_BYTES, 1),
            Node::Link(link) => {
                let length = link.text(state).map_or(0, |text| text.len());
                (FileType::Symlink, 0o777, length as u64, 1)
            }
        };
        FileAttr {
            ino: INodeNo(number),
            size,
            blocks: 0,
            atime: self.started,
            mtime: self.started,
            ctime: self.started,
            crtime: self.started,
            kind,
            perm,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn opened(&self, open: Open) -> FileHandle {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        locked(&self.open).insert(handle, open);
        FileHandle(handle)
    }

    /// What a handle was opened for.
    fn open_text(&self, handle: FileHandle) -> Option<Arc<str>> {
        match locked(&self.open).get(&handle.0) {
            Some(Open::Text(text)) => Some(Arc::clone(text)),
            _ => None,
        }
    }
}

/// For how long the kernel may use an answer about a node.
fn lifetime(node: &Node) -> Duration {
    match node {
        Node::Directory(directory) if directory.is_lasting() => LASTING,
        _ => Duration::ZERO,
    }
}

const fn kind(node: &Node) -> FileType {
    match node {
        Node::Directory(_) => FileType::Directory,
        Node::File(_) => FileType::RegularFile,
        Node::Link(_) => FileType::Symlink,
    }
}

fn is_appending(flags: OpenFlags) -> bool {
    let append = OFlags::APPEND.bits().cast_signed();
    flags.0 & append != 0
}

fn carry_out(source: &Source, inbox: &Receiver<Write>) {
    for write in inbox {
        match source.write(&write.file, &write.bytes, &write.caller) {
            Ok(()) => {
                // The kernel sends less than 4 GiB at a time.
                let length = u32::try_from(write.bytes.len()).unwrap_or(u32::MAX);
                write.reply.written(length);
            }
            Err(refusal) => {
                tracing::warn!("scst: {}: {}", write.caller.name, refusal.text);
                write.reply.error(Errno::from_i32(refusal.errno));
            }
        }
    }
}

impl Filesystem for Tree {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (Some(Node::Directory(directory)), Some(name)) = (self.node(parent), name.to_str())
        else {
            return reply.error(Errno::ENOENT);
        };
        let state = self.source.state();
        let Some(node) = directory.child(&state, name) else {
            return reply.error(Errno::ENOENT);
        };
        let lifetime = lifetime(&node);
        let number = locked(&self.nodes).look_up(node.clone());
        let attributes = self.attributes(number, &node, &state);
        reply.entry(&lifetime, &attributes, Generation(0));
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        locked(&self.nodes).forget(number.0, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let state = self.source.state();
        match self.node(number) {
            Some(node) if node.exists(&state) => {
                let attributes = self.attributes(number.0, &node, &state);
                reply.attr(&lifetime(&node), &attributes);
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    /// A shell shortens a file before it writes a command into it; nothing else can be set.
    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        self.getattr(request, number, handle, reply);
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let text = match self.node(number) {
            Some(Node::Link(link)) => link.text(&self.source.state()),
            _ => None,
        };
        match text {
            Some(text) => reply.data(text.as_bytes()),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let node = self.node(number);
        let Some(Node::File(file)) = node.filter(|node| node.exists(&self.source.state())) else {
            return reply.error(Errno::ENOENT);
        };
        let text = match flags.acc_mode() {
            fuser::OpenAccMode::O_WRONLY => String::new(),
            _ => self.source.text(&file),
        };
        let handle = self.opened(Open::Text(text.into()));
        reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(text) = self.open_text(handle) else {
            return reply.error(Errno::EBADF);
        };
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(text.len());
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let to = from.saturating_add(size).min(text.len());
        reply.data(&text.as_bytes()[from..to]);
    }

    fn write(
        &self,
        request: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(Node::File(file)) = self.node(number) else {
            return reply.error(Errno::EINVAL);
        };
        if data.len() >= COMMAND_MAX {
            return reply.error(Errno::E2BIG);
        }
        // A command is one write. An appending shell writes behind the size that it was told.
        if offset != 0 && !is_appending(flags) {
            return reply.error(Errno::EINVAL);
        }
        if request.uid() != self.uid && request.uid() != 0 {
            return reply.error(Errno::EACCES);
        }
        let write = Write {
            file,
            bytes: data.to_vec(),
            caller: Caller {
                name: format!("uid {}", request.uid()),
                from: "scst tree".to_owned(),
            },
            reply,
        };
        match self.writes.try_send(write) {
            Ok(()) => {}
            Err(TrySendError::Full(write) | TrySendError::Disconnected(write)) => {
                write.reply.error(Errno::EBUSY);
            }
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        locked(&self.open).remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let state = self.source.state();
        let node = self.node(number);
        let Some(Node::Directory(directory)) = node.filter(|node| node.exists(&state)) else {
            return reply.error(Errno::ENOENT);
        };
        let own = [".", ".."].map(|name| (name.to_owned(), FileType::Directory));
        let names = directory.names(&state).into_iter().filter_map(|name| {
            let kind = kind(&directory.child(&state, &name)?);
            Some((name, kind))
        });
        let handle = self.opened(Open::Names(own.into_iter().chain(names).collect()));
        reply.opened(handle, FopenFlags::empty());
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = match locked(&self.open).get(&handle.0) {
            Some(Open::Names(names)) => Arc::clone(names),
            _ => return reply.error(Errno::EBADF),
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for ((name, kind), next) in names.iter().zip(1_u64..).skip(from) {
            // The kernel asks for the number of a name when it looks it up.
            if reply.add(number, next, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        locked(&self.open).remove(&handle.0);
        reply.ok();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
