//! Buffers that are registered with the ring for operations on O_DIRECT files.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_reactor::storage::{
    FileHandle, FileOperation, FileOperationKind, Storage, StorageTag,
};
use longshore_reactor::{Buffer, BufferPool, EngineConfig, EngineKind, MemoryBudget};

use crate::direct::{Direct, direct_file, pattern};
use crate::rig::{PATIENCE, on_both_engines};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

fn config(registered_bytes_max: usize) -> EngineConfig {
    EngineConfig {
        registered_bytes_max,
        ..EngineConfig::default()
    }
}

fn pool() -> BufferPool {
    BufferPool::new(MemoryBudget::new(64 * MIB), 16 * MIB)
}

on_both_engines! {
    fn a_buffer_is_registered_when_it_is_used_again_and_moves_the_same_bytes(rig) {
        let Some((file, cached)) = direct_file() else { return };
        let mut direct = Direct::new(rig.resized(config(MIB)), &file);
        let mut buffer = pool().take(64 * KIB).unwrap();
        for round in 0..4 {
            buffer = direct.read_all(round * 64 * KIB, buffer);
            direct.assert_registered(round as u64);
        }
        direct.assert_bytes(64 * KIB);
        // Parts of it, both ways.
        buffer.fill(3);
        buffer = direct.read(128 * KIB, buffer, 16 * KIB, 40 * KIB);
        assert!(buffer[16 * KIB..40 * KIB] == pattern(MIB, 0)[128 * KIB..152 * KIB]);
        assert!(buffer[..16 * KIB].iter().chain(&buffer[40 * KIB..]).all(|byte| *byte == 3));
        buffer.copy_from_slice(&pattern(64 * KIB, 5));
        buffer = direct.write(512 * KIB, buffer, 0, 64 * KIB);
        direct.write(768 * KIB, buffer, 8 * KIB, 24 * KIB);
        direct.assert_registered(6);
        let mut found = vec![0; 64 * KIB];
        cached.read_exact_at(&mut found, 512 * KIB as u64).unwrap();
        assert!(found == pattern(64 * KIB, 5));
        cached.read_exact_at(&mut found, 768 * KIB as u64).unwrap();
        assert!(found[..16 * KIB] == pattern(64 * KIB, 5)[8 * KIB..24 * KIB]);
        assert!(found[16 * KIB..] == pattern(MIB, 0)[784 * KIB..832 * KIB]);
    }

    fn small_operations_are_left_as_they_are(rig) {
        let Some((file, _)) = direct_file() else { return };
        let mut direct = Direct::new(rig.resized(config(MIB)), &file);
        let mut pool = pool();
        let mut small = pool.take(8 * KIB).unwrap();
        let mut large = pool.take(64 * KIB).unwrap();
        for _ in 0..4 {
            small = direct.read_all(0, small);
            large = direct.read(0, large, 0, 4 * KIB);
        }
        direct.assert_registered(0);
        direct.assert_bytes(0);
    }

    fn nothing_is_registered_unless_it_is_asked_for(rig) {
        let Some((file, _)) = direct_file() else { return };
        let mut direct = Direct::new(rig.resized(config(0)), &file);
        let mut buffer = pool().take(64 * KIB).unwrap();
        for _ in 0..4 {
            buffer = direct.read_all(0, buffer);
        }
        direct.assert_registered(0);
        direct.assert_bytes(0);
        assert_eq!(direct.counters().registered_bytes_max, 0);
    }

    fn buffers_of_cached_files_and_of_no_pool_are_not_registered(rig) {
        let Some((file, cached)) = direct_file() else { return };
        let mut direct = Direct::new(rig.resized(config(MIB)), &file);
        let mut buffer = Buffer::allocate(64 * KIB);
        for _ in 0..4 {
            buffer = direct.read_all(0, buffer);
        }
        let cached = FileHandle(Arc::new(cached));
        let mut buffer = pool().take(64 * KIB).unwrap();
        for _ in 0..4 {
            let kind = FileOperationKind::Read { offset: 0, buffer, start: 0, end: 64 * KIB };
            let file = cached.clone();
            let tag = StorageTag(1);
            direct.rig.engine.submit(FileOperation { file, kind, is_direct: false, tag });
            buffer = direct.rig.completions(1).pop().unwrap().buffer.unwrap();
        }
        direct.assert_registered(0);
        direct.assert_bytes(0);
    }

    fn what_is_registered_stays_within_the_bound(rig) {
        let Some((file, _)) = direct_file() else { return };
        let mut direct = Direct::new(rig.resized(config(160 * KIB)), &file);
        let mut pool = pool();
        let mut buffers: Vec<_> = (0..4).map(|_| pool.take(64 * KIB).unwrap()).collect();
        for round in 0..3 {
            let used = buffers.into_iter().enumerate();
            buffers = used.map(|(n, buffer)| direct.read_all((n + round) * 64 * KIB, buffer)).collect();
        }
        direct.assert_registered(4);
        direct.assert_bytes(128 * KIB);
        // One that is let go makes room for one of the others.
        drop(buffers.remove(0));
        direct.rig.turn(Duration::ZERO);
        direct.assert_bytes(64 * KIB);
        let last = buffers.pop().unwrap();
        direct.read_all(0, last);
        direct.assert_registered(5);
    }

    fn memory_that_was_freed_is_let_go_and_its_place_means_the_next_buffer(rig) {
        let Some((file, _)) = direct_file() else { return };
        let mut direct = Direct::new(rig.resized(config(MIB)), &file);
        for length in [16 * KIB, 64 * KIB, 512 * KIB, 16 * KIB] {
            // A pool of its own: its buffers are freed with it, and the next ones may lie where they did.
            let mut pool = pool();
            for round in 0..3 {
                let buffer = pool.take(length).unwrap();
                let buffer = direct.read_all(round * 4 * KIB, buffer);
                pool.put(buffer);
            }
            direct.assert_bytes(length);
            drop(pool);
            direct.rig.turn(Duration::ZERO);
            direct.assert_bytes(0);
            let fresh = Buffer::allocate(length);
            direct.read_all(8 * KIB, fresh);
        }
        direct.assert_registered(8);
    }

    fn memory_freed_by_another_thread_is_let_go_while_the_engine_would_sleep(rig) {
        let Some((file, _)) = direct_file() else { return };
        let mut direct = Direct::new(rig.resized(config(MIB)), &file);
        let buffer = pool().take(64 * KIB).unwrap();
        let buffer = direct.read_all(0, buffer);
        let buffer = direct.read_all(0, buffer);
        direct.assert_bytes(64 * KIB);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            drop(buffer);
        });
        if direct.rig.engine.kind() == EngineKind::IoUring {
            let begun = Instant::now();
            while direct.counters().registered_bytes > 0 {
                direct.rig.turn(PATIENCE);
                assert!(begun.elapsed() < PATIENCE, "nothing woke it");
            }
        }
        thread.join().unwrap();
    }

    fn a_buffer_that_comes_from_another_ring_gets_a_place_in_this_one(rig) {
        let Some((file, _)) = direct_file() else { return };
        let mut here = Direct::new(rig.resized(config(MIB)), &file);
        let mut there = Direct::new(rig.resized(config(MIB)), &file);
        let mut without = Direct::new(rig.resized(config(0)), &file);
        let mut pool = pool();
        // Both tables have a place of that number, for different memory.
        let mut other = pool.take(64 * KIB).unwrap();
        let mut moving = pool.take(64 * KIB).unwrap();
        for _ in 0..2 {
            other = there.read_all(192 * KIB, other);
            moving = here.read_all(0, moving);
        }
        moving = there.read_all(64 * KIB, moving);
        there.assert_registered(2);
        there.assert_bytes(128 * KIB);
        other = there.read_all(320 * KIB, other);
        assert!(moving[..] == pattern(MIB, 0)[64 * KIB..128 * KIB], "untouched by the other's read");
        here.rig.turn(Duration::ZERO);
        here.assert_bytes(0);
        // A ring that registers nothing takes it as it is.
        moving = without.read_all(448 * KIB, moving);
        without.assert_registered(0);
        moving = here.read_all(128 * KIB, moving);
        here.assert_registered(2);
        drop((moving, other));
    }

    fn buffers_outlive_the_ring_that_registered_them(rig) {
        let Some((file, _)) = direct_file() else { return };
        let mut first = Direct::new(rig.resized(config(MIB)), &file);
        let mut buffer = pool().take(64 * KIB).unwrap();
        for _ in 0..2 {
            buffer = first.read_all(0, buffer);
        }
        drop(first);
        let mut second = Direct::new(rig.resized(config(MIB)), &file);
        for _ in 0..2 {
            buffer = second.read_all(0, buffer);
        }
        second.assert_registered(2);
    }
}
