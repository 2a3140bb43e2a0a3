//! Memory of connections, OpenSSL's included: what an idle one keeps, and that records take none.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Once};
use std::thread;

use longshore_tls::{Client, Handshake, Psk, PskStore, Server, Session, Suite};

/// OpenSSL 3.0 takes four notes of 40 bytes from the C library for each record that it writes, and gives them back: those are
/// not counted as allocations.
const NOTE_BYTES: usize = 64;

/// Most that an idle connection may take beyond one without TLS.
const IDLE_BYTES_MAX: i64 = 40 << 10;

thread_local! {
    // Of this thread.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

fn taken(bytes: usize) {
    LIVE.set(LIVE.get() + i64::try_from(bytes).unwrap_or(i64::MAX));
}

fn given_back(bytes: usize) {
    LIVE.set(LIVE.get() - i64::try_from(bytes).unwrap_or(i64::MAX));
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator; counting does not allocate, since the
// counters are constant-initialised thread-locals without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        taken(layout.size());
        // SAFETY: the caller's promises, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        given_back(layout.size());
        // SAFETY: the caller's promises, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

unsafe extern "C" {
    fn malloc(bytes: usize) -> *mut c_void;
    fn realloc(pointer: *mut c_void, bytes: usize) -> *mut c_void;
    fn free(pointer: *mut c_void);
    fn malloc_usable_size(pointer: *mut c_void) -> usize;
    fn CRYPTO_set_mem_functions(
        allocate: unsafe extern "C" fn(usize, *const c_char, c_int) -> *mut c_void,
        resize: unsafe extern "C" fn(*mut c_void, usize, *const c_char, c_int) -> *mut c_void,
        release: unsafe extern "C" fn(*mut c_void, *const c_char, c_int),
    ) -> c_int;
}

fn openssl_allocates(bytes: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + u64::from(bytes > NOTE_BYTES));
}

unsafe extern "C" fn allocate(bytes: usize, _file: *const c_char, _line: c_int) -> *mut c_void {
    openssl_allocates(bytes);
    // SAFETY: no requirements; the usable size of null is 0.
    unsafe {
        let pointer = malloc(bytes);
        taken(malloc_usable_size(pointer));
        pointer
    }
}

unsafe extern "C" fn resize(
    pointer: *mut c_void,
    bytes: usize,
    _file: *const c_char,
    _line: c_int,
) -> *mut c_void {
    openssl_allocates(bytes);
    // SAFETY: OpenSSL passes what it got here, or null.
    unsafe {
        given_back(malloc_usable_size(pointer));
        let pointer = realloc(pointer, bytes);
        taken(malloc_usable_size(pointer));
        pointer
    }
}

unsafe extern "C" fn release(pointer: *mut c_void, _file: *const c_char, _line: c_int) {
    // SAFETY: OpenSSL passes what it got here, or null.
    unsafe {
        given_back(malloc_usable_size(pointer));
        free(pointer);
    }
}

/// Comes before anything else of OpenSSL.
fn count_openssl() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions have the types that OpenSSL declares, and nothing was allocated yet.
        let set = unsafe { CRYPTO_set_mem_functions(allocate, resize, release) };
        assert_eq!(set, 1, "OpenSSL has allocated already");
    });
}

struct OneKey(Psk);

impl PskStore for OneKey {
    fn find(&self, identity: &[u8]) -> Option<Psk> {
        (self.0.identity() == identity).then(|| self.0.clone())
    }
}

fn psk(suite: Suite) -> Psk {
    // As long as those of NVMe/TCP are.
    let identity = [b'n'; 200];
    Psk::new(&identity, suite, &vec![1; suite.hash_length()]).unwrap()
}

fn server(suite: Suite) -> Server {
    Server::new(Arc::new(OneKey(psk(suite)))).unwrap()
}

fn pair() -> (UnixStream, UnixStream) {
    let (up, down) = UnixStream::pair().unwrap();
    for end in [&up, &down] {
        end.set_nonblocking(true).unwrap();
    }
    (up, down)
}

fn shake(session: &mut Session<UnixStream>) {
    while session.handshake().unwrap() != Handshake::Done {
        thread::yield_now();
    }
}

fn send_all(session: &mut Session<UnixStream>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match session.send(&[IoSlice::new(bytes)]) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        if !bytes.is_empty() {
            thread::yield_now();
        }
    }
}

fn receive_all(session: &mut Session<UnixStream>, bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        match session.receive(&mut [IoSliceMut::new(&mut bytes[filled..])]) {
            Ok(received) => filled += received,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                thread::yield_now();
            }
        }
    }
}

#[test]
fn an_idle_connection_takes_at_most_40_kib() {
    const MANY: i64 = 64;
    count_openssl();
    for suite in Suite::ALL {
        let server = server(suite);
        let ends: Vec<_> = (0..MANY).map(|_| pair()).collect();
        let (ups, downs): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
        let (over, end) = channel::<()>();
        // On a thread of their own, whose memory is not counted here.
        let hosts = thread::spawn(move || {
            let client = Client::new().unwrap();
            let mut sessions = Vec::new();
            for up in ups {
                let mut session = client.connect(up, psk(suite)).unwrap();
                shake(&mut session);
                send_all(&mut session, &[7; 20_000]);
                sessions.push(session);
            }
            for session in &mut sessions {
                receive_all(session, &mut [0; 5000]);
            }
            let _ = end.recv();
        });
        let mut sessions = Vec::with_capacity(64);
        // What all of them share is there with the first.
        let mut before = 0;
        for (at, down) in downs.into_iter().enumerate() {
            if at == 1 {
                before = LIVE.get();
            }
            let mut session = server.accept(down).unwrap();
            shake(&mut session);
            receive_all(&mut session, &mut [0; 20_000]);
            send_all(&mut session, &[8; 5000]);
            session.release_memory();
            sessions.push(session);
        }
        let each = (LIVE.get() - before) / (MANY - 1);
        println!("{}: {each} bytes for an idle connection", suite.name());
        assert!(each <= IDLE_BYTES_MAX, "{}: {each} bytes", suite.name());
        // It was counted at all.
        assert!(each > 2000, "{}: {each} bytes", suite.name());
        drop(over);
        hosts.join().unwrap();
    }
}

#[test]
fn records_take_no_memory() {
    count_openssl();
    for suite in Suite::ALL {
        let (up, down) = pair();
        let mut client = Client::new().unwrap().connect(up, psk(suite)).unwrap();
        let mut server = server(suite).accept(down).unwrap();
        while (client.handshake().unwrap(), server.handshake().unwrap())
            != (Handshake::Done, Handshake::Done)
        {}
        let sent = vec![5; 64 << 10];
        let mut received = vec![0; 64 << 10];
        let mut exchange = |rounds: usize| {
            let before = ALLOCATIONS.get();
            for length in [72, 4096, 16_384, 40_000].into_iter().cycle().take(rounds) {
                send_all(&mut client, &sent[..length]);
                receive_all(&mut server, &mut received[..length]);
                send_all(&mut server, &sent[..length]);
                receive_all(&mut client, &mut received[..length]);
                // There is nothing more, and who looks gives nothing back.
                let empty = server.receive(&mut [IoSliceMut::new(&mut received[..])]);
                assert_eq!(empty.unwrap_err().kind(), ErrorKind::WouldBlock);
            }
            ALLOCATIONS.get() - before
        };
        exchange(8);
        assert_eq!(exchange(400), 0, "{}", suite.name());
    }
}
