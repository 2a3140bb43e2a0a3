//! Where payload has taken all of a bounded address space, small allocations go on. One test in a process of its own: the
//! limit is that of the process.

use std::fs;
use std::thread::Builder;

use longshore_reactor::allocator::{self, Reserving};
use longshore_reactor::{Buffer, BufferPool, MemoryBudget};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[global_allocator]
static ALLOCATOR: Reserving = Reserving;

const MIB: usize = 1 << 20;

/// Leaves the process so much address space beyond what it has.
fn leave(bytes: u64) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib: u64 = size
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    let limit = Rlimit {
        current: Some(kib * 1024 + bytes),
        maximum: getrlimit(Resource::As).maximum,
    };
    setrlimit(Resource::As, limit).unwrap();
}

/// Takes all payload memory there is, down to single pages.
fn use_up(pool: &mut BufferPool) -> Vec<Buffer> {
    let sizes = [MIB, 64 << 10, 4096];
    let mut taken = Vec::new();
    for size in sizes {
        taken.extend(std::iter::from_fn(|| pool.take(size)));
    }
    taken
}

#[test]
#[cfg_attr(miri, ignore = "it has no limits")]
fn small_allocations_go_on_where_payload_has_taken_all() {
    allocator::keep_reserve().unwrap();
    let mut pool = BufferPool::new(MemoryBudget::new(usize::MAX), 0);
    leave(16 << 20);
    let payload = use_up(&mut pool);
    assert!(payload.len() >= 15);
    assert!(allocator::has_reserve());
    assert!(
        allocator::spawn(Builder::new(), || ()).is_err(),
        "it could start, and then find no room for its signals"
    );

    // Small ones from now on, as peers and the log cause them.
    let mut small: Vec<Box<[u8]>> = Vec::with_capacity(1 << 15);
    while allocator::has_reserve() {
        small.push(vec![1; 1000].into_boxed_slice());
        assert!(small.len() < small.capacity());
    }
    assert!(pool.take(MIB).is_none());
    assert!(pool.take(4096).is_none(), "the rest is not for payload");
    small.extend((0..500).map(|_| vec![1; 1000].into_boxed_slice()));
    let mut grown = vec![1_u8; 300 << 10];
    grown.reserve_exact(100 << 10);
    grown.resize(400 << 10, 1);
    let zeros = vec![0_u8; 100 << 10];
    assert!(small.iter().all(|it| **it == [1; 1000]));
    assert!(grown.iter().all(|it| *it == 1) && zeros.iter().all(|it| *it == 0));

    // What payload gives back is reserved before there is payload again.
    drop(payload);
    assert!(allocator::has_reserve());
    let thread = allocator::spawn(Builder::new(), || 7).unwrap();
    assert_eq!(thread.join().unwrap(), 7);
    let payload = use_up(&mut pool);
    assert!(
        payload.len() >= 4,
        "nothing is held for the thread any more"
    );
    assert!(allocator::has_reserve());
    println!("{} small allocations", small.len());
}
