//! What connections get that share a shard.

use longshore_volume::BackendName;

use crate::rig::{Client, Options, Rig};

const SESSIONS: usize = 64;
const TURNS: usize = 200;
/// Turns that do not count: who came first had everything.
const BEGINNING: usize = 40;

/// Every session keeps `depth` commands outstanding that `begin` begins; each gets more than `enough` answers, and within
/// 10 % they get the same.
fn equal_shares(options: Options, depth: usize, enough: u64, begin: impl Fn(&mut Client)) {
    let mut rig = Rig::new(&Options {
        clients: SESSIONS,
        ..options
    });
    for turn in 0..BEGINNING + TURNS {
        if turn == BEGINNING {
            for client in &mut rig.clients {
                (client.answered, client.bytes) = (0, 0);
            }
        }
        // Nobody is always the first to ask.
        for number in 0..SESSIONS {
            let client = &mut rig.clients[(number * 29 + turn) % SESSIONS];
            client.take();
            while client.outstanding < depth {
                begin(client);
            }
        }
        rig.turn();
    }
    for of in [|it: &Client| it.answered, |it: &Client| it.bytes] {
        let shares: Vec<u64> = rig.clients.iter().map(of).collect();
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        assert!(*least > enough, "it was worth a test: {shares:?}");
        assert!(most * 100 <= least * 110, "{shares:?}");
    }
}

#[test]
fn sessions_of_equal_load_get_equal_shares_of_small_reads() {
    equal_shares(Options::default(), 32, 100, |client| client.read(8));
}

#[test]
fn sessions_of_equal_load_get_equal_shares_of_large_reads() {
    equal_shares(Options::default(), 32, 100, |client| client.read(128));
}

#[test]
fn sessions_of_equal_load_get_equal_shares_of_writes() {
    let options = Options {
        backend: BackendName::MEM,
        ..Options::default()
    };
    equal_shares(options, 8, 100, |client| client.write(128, 0));
}

#[test]
fn sessions_of_equal_load_get_equal_shares_where_memory_is_short() {
    // They ask for 64 MiB at a time.
    let options = Options {
        backend: BackendName::MEM,
        memory: 16 << 20,
        ..Options::default()
    };
    equal_shares(options, 16, 100, |client| client.read(128));
}

#[test]
fn sessions_of_equal_load_get_equal_shares_of_writes_that_are_refused_for_lack_of_memory() {
    // There is memory for one write each of half of them; the others are refused and ask again.
    let options = Options {
        backend: BackendName::MEM,
        memory: 2 << 20,
        ..Options::default()
    };
    equal_shares(options, 16, 40, |client| client.write(128, 0));
}

#[test]
fn a_small_read_waits_for_no_more_than_a_quantum_of_a_large_writer() {
    const WRITER: usize = 0;
    const READER: usize = 1;
    /// What a connection receives in a turn while others are active.
    const QUANTUM: usize = 64 << 10;
    let mut rig = Rig::new(&Options {
        backend: BackendName::MEM,
        clients: 2,
        ..Options::default()
    });
    let mut waited = 0;
    for turn in 0..TURNS {
        let writer = &mut rig.clients[WRITER];
        writer.take();
        while writer.outstanding < 32 {
            writer.write(2048, 0);
        }
        if turn % 5 == 0 {
            rig.clients[READER].read(8);
        }
        let before = rig.clients[WRITER].wire().received;
        rig.turn();
        let received = rig.clients[WRITER].wire().received - before;
        waited += usize::from(received > QUANTUM / 2);
        let reader = &mut rig.clients[READER];
        reader.take();
        assert_eq!(reader.outstanding, 0, "not answered in turn {turn}");
        // At first the shard does not know that there is somebody else.
        assert!(turn < 10 || received <= QUANTUM, "{received} bytes first");
    }
    assert!(waited > TURNS / 2, "the writer had much to send");
    let writer = &rig.clients[WRITER];
    assert!(writer.answered > 5, "and is not kept from writing");
}
