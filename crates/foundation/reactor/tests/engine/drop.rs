//! Dropping an engine while it is at work.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_reactor::storage::{
    FileHandle, FileOperation, FileOperationKind, Storage, StorageTag,
};
use longshore_reactor::{Buffer, EngineKind, SocketToken, socket};

use crate::rig::{listener, on_both_engines};

on_both_engines! {
    fn nothing_is_written_after_the_engine_is_gone(rig) {
        let file = FileHandle(Arc::new(tempfile::tempfile().unwrap()));
        let copy = file.0.try_clone().unwrap();
        let config = longshore_reactor::EngineConfig { ring_entries: 16, ..Default::default() };
        let mut engine = rig.resized(config).engine;
        for number in 0..400 {
            let mut buffer = Buffer::allocate(65536);
            buffer.fill(1);
            let kind = FileOperationKind::Write {
                offset: number * 65536,
                buffer,
                start: 0,
                end: 65536,
                dsync: number % 2 == 0,
            };
            engine.submit(FileOperation { file: file.clone(), kind, is_direct: false, tag: StorageTag(number) });
        }
        let mut events = Vec::new();
        engine.wait(Some(Duration::ZERO), &mut events).unwrap();
        drop(engine);
        copy.set_len(0).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(copy.metadata().unwrap().len(), 0);
    }

    fn file_is_closed_when_the_engine_is_gone(rig) {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        let handle = FileHandle(Arc::new(file));
        let watch = Arc::downgrade(&handle.0);
        let mut engine = rig.resized(longshore_reactor::EngineConfig::default()).engine;
        for kind in [
            FileOperationKind::SeekData { offset: 0 },
            FileOperationKind::DataSync,
            FileOperationKind::Read {
                offset: 0,
                buffer: Buffer::allocate(4096),
                start: 0,
                end: 4096,
            },
        ] {
            engine.submit(FileOperation { file: handle.clone(), kind, is_direct: false, tag: StorageTag(0) });
        }
        drop(handle);
        drop(engine);
        assert!(watch.upgrade().is_none());
    }

    fn address_is_free_when_the_engine_and_the_listener_are_gone(rig) {
        let (first, address) = listener();
        drop(first);
        for _ in 0..20 {
            let options = socket::ListenOptions::default();
            let listener = socket::listen(address, options).unwrap();
            let mut other = rig.resized(longshore_reactor::EngineConfig::default());
            other.engine.register(listener.as_fd(), SocketToken(1)).unwrap();
            other.turn(Duration::ZERO);
            drop(other);
            drop(listener);
        }
    }

    fn operation_that_never_ends_is_cancelled(rig) {
        if rig.engine.kind() == EngineKind::Epoll {
            // A positioned read of a pipe fails at once there, so nothing can be made to hang.
            return;
        }
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let file = FileHandle(Arc::new(reader.into()));
        let buffer = Buffer::allocate(4096);
        let kind = FileOperationKind::Read { offset: 0, buffer, start: 0, end: 4096 };
        let mut engine = rig.resized(longshore_reactor::EngineConfig::default()).engine;
        engine.submit(FileOperation { file, kind, is_direct: false, tag: StorageTag(0) });
        let mut events = Vec::new();
        engine.wait(Some(Duration::from_millis(20)), &mut events).unwrap();
        assert!(events.is_empty());
        let start = Instant::now();
        drop(engine);
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}
