//! Who gets memory when there is less than everybody asks for.

use longshore_volume::BackendName;

use crate::rig::{Options, Rig};

const SESSIONS: usize = 64;
/// Blocks of a read of 64 KiB, and of 1 MiB.
const READ: u32 = 128;
const LARGE: u32 = 2048;

fn rig(memory: u64) -> Rig {
    Rig::new(&Options {
        backend: BackendName::MEM,
        clients: SESSIONS,
        memory,
        ..Options::default()
    })
}

/// All but the first session keep 16 reads outstanding, which are twice as much as there is memory.
fn load(rig: &mut Rig) {
    for client in &mut rig.clients[1..] {
        client.take();
        while client.outstanding < 16 {
            client.read(READ);
        }
    }
}

#[test]
fn a_read_waits_for_one_read_of_each_other_session_at_most() {
    let mut rig = rig(32 << 20);
    for turn in 0..200 {
        load(&mut rig);
        if turn % 4 == 0 {
            rig.clients[0].take();
            assert_eq!(rig.clients[0].outstanding, 0, "turn {turn}");
            rig.clients[0].read(READ);
        }
        rig.turn();
    }
    assert_eq!(rig.clients[0].answered, 49);
}

#[test]
fn a_large_read_is_not_overtaken_for_ever() {
    let mut rig = rig(16 << 20);
    for turn in 0..1000 {
        // One session after the other takes what was sent, so that little memory comes free at a time.
        let client = &mut rig.clients[1 + turn % (SESSIONS - 1)];
        client.take();
        while client.outstanding < 32 {
            client.read(READ);
        }
        let client = &mut rig.clients[0];
        client.take();
        if client.outstanding == 0 {
            client.read(LARGE);
        }
        rig.turn();
    }
    let (large, other) = (&rig.clients[0], &rig.clients[1]);
    assert!(large.answered > 60, "{}", large.answered);
    assert!(other.answered > 100, "{}", other.answered);
}

#[test]
fn memory_that_comes_free_is_used_at_once() {
    let mut rig = rig(8 << 20);
    for _ in 0..5 {
        for client in &mut rig.clients {
            for _ in 0..12 {
                client.read(READ);
            }
        }
        // Nobody but the shard does anything, and it does not go to sleep with reads that could be done.
        let mut next = rig.turn();
        for _ in 0..1000 {
            if rig.sleeps(next) {
                break;
            }
            next = rig.turn_without_events();
        }
        for client in &mut rig.clients {
            client.take();
            assert_eq!(client.outstanding, 0);
        }
    }
}

#[test]
fn reads_that_wait_and_writes_that_cannot_keep_nothing_from_each_other() {
    let mut rig = rig(8 << 20);
    for _ in 0..400 {
        for (number, client) in rig.clients.iter_mut().enumerate() {
            client.take();
            // Half of them read 512 KiB at a time, the others write 64 KiB.
            let depth = if number % 2 == 0 { 2 } else { 16 };
            while client.outstanding < depth {
                if number % 2 == 0 {
                    client.read(LARGE / 2);
                } else {
                    client.write(READ, 0);
                }
            }
        }
        rig.turn();
    }
    let answered = |of: usize| {
        let clients = rig.clients.iter().skip(of).step_by(2);
        clients.map(|client| client.answered).collect::<Vec<_>>()
    };
    let (reads, writes) = (answered(0), answered(1));
    assert!(reads.iter().all(|reads| *reads > 5), "{reads:?}");
    assert!(writes.iter().all(|writes| *writes > 20), "{writes:?}");
}
