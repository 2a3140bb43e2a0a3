//! Rude acts at the steps of conversations with the library.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use longshore_initiator::options::Options;
use longshore_initiator::url::{HostPort, Url};
use longshore_initiator::volume::{RemoteVolume, block_on};
use longshore_initiator::{attach, iscsi, nvme};
use longshore_reactor::Buffer;
use longshore_tests::proxy::framing::{Digests, Framing};
use longshore_tests::proxy::{Direction, Protocol};
use longshore_tests::random::Random;
use longshore_tests::relay::{Passed, Relay, Tamper};
use longshore_tests::server::Server;

use crate::acts::{self, Act, Rude};
use crate::{BOTH, honest_server, number_from, portal, seed, side_by_side, url};

/// How long one conversation may take on a busy machine. Its time-outs are far below.
const LIMIT: Duration = Duration::from_secs(60);

/// Steps of each act in an ordinary run; `LONGSHORE_RUDE_STEPS`: more, 0: all.
const STEPS: usize = 2;

/// A conversation with the server, by the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conversation {
    Discover,
    /// One path: attach, describe, close.
    Attach,
    /// The shared volume: open, operations, a question, close.
    Volume,
}

const CONVERSATIONS: [Conversation; 3] = [
    Conversation::Discover,
    Conversation::Attach,
    Conversation::Volume,
];

fn options(impatient: bool) -> Options {
    let mut options = Options::default();
    let times = &mut options.timeouts;
    // Where everything goes well, a machine that stands still for a while must not spoil it.
    let usual = Duration::from_millis(if impatient { 150 } else { 60_000 });
    (times.connect, times.login) = (usual.max(Duration::from_secs(2)), usual);
    (times.request, times.keep_alive) = (usual, usual);
    (times.reconnect_min, times.reconnect_max) =
        (Duration::from_millis(1), Duration::from_millis(50));
    times.give_up = usual;
    options.volume.settle = Duration::from_millis(10);
    options.volume.retry_for = usual;
    options.volume.close_wait = Duration::from_millis(100);
    options.nvme.keep_alive = usual;
    options.depth = 8;
    options
}

impl Conversation {
    /// Has it; whether all of it went well. It may fail, and must not panic.
    fn hold(self, protocol: Protocol, address: SocketAddr, digests: bool, impatient: bool) -> bool {
        let options = options(impatient);
        let text = url(protocol, address, digests);
        let url: Url = text.parse().expect("a URL");
        match self {
            Self::Discover => {
                let portal = HostPort::from(address);
                match protocol {
                    Protocol::Iscsi => iscsi::discover(&portal, &options).is_ok(),
                    Protocol::NvmeTcp => nvme::discover(&portal, &options).is_ok(),
                }
            }
            Self::Attach => {
                let Ok(mut attachment) = attach::attach(&url, &options) else {
                    return false;
                };
                let described = attachment.control.describe().is_ok();
                let driven = attachment.control.drive(Instant::now()).is_ok();
                for mut queue in attachment.queues {
                    queue.close();
                    let _ = queue.send();
                    drop(queue.abandon());
                }
                attachment.control.close();
                described && driven
            }
            Self::Volume => {
                let Ok(volume) = RemoteVolume::open(&url, &options) else {
                    return false;
                };
                let results = [
                    block_on(volume.write(0, Buffer::allocate(20 << 10), false)).0,
                    block_on(volume.read(0, Buffer::allocate(64 << 10))).0,
                    block_on(volume.compare_and_write(0, Buffer::allocate(1024), true)).0,
                    block_on(volume.write_zeroes(0, 8192, true, true)),
                    block_on(volume.unmap(8192, 4096)),
                    block_on(volume.flush()),
                ];
                let _ = block_on(volume.extent_status(0, 8192));
                volume.close();
                results.iter().all(Result::is_ok)
            }
        }
    }
}

/// Panics of any thread of this process, as text.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn panics() -> std::sync::MutexGuard<'static, Vec<String>> {
    PANICS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Records every panic: in a thread of the library it ends nothing here, and the process in a release.
fn watch_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            panics().push(info.to_string());
            usual(info);
        }));
    });
}

/// Counts PDUs to the client.
struct Count {
    framing: Framing,
    digests: Digests,
    pdus: Arc<AtomicUsize>,
}

impl Tamper for Count {
    fn pass(&mut self, bytes: &[u8]) -> Passed {
        self.framing.push(bytes);
        while let Some(length) = self.framing.next(&self.digests) {
            self.framing.take(length);
            self.pdus.fetch_add(1, Ordering::SeqCst);
        }
        Passed::On(bytes.to_vec())
    }
}

fn untouched() -> Box<dyn Tamper> {
    Box::new(|bytes: &[u8]| Passed::On(bytes.to_vec()))
}

/// PDUs of an honest server in a conversation.
fn length(server: &Server, protocol: Protocol, conversation: Conversation) -> usize {
    let pdus = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&pdus);
    let relay = Relay::start(portal(server, protocol), move |direction| match direction {
        Direction::ToServer => untouched(),
        Direction::ToClient => Box::new(Count {
            framing: Framing::new(protocol),
            digests: Digests::default(),
            pdus: Arc::clone(&counted),
        }),
    })
    .expect("a relay");
    // With all the time it may need: here everything goes well.
    assert!(
        conversation.hold(protocol, relay.address(), false, false),
        "{conversation:?} over {protocol:?} with an honest server"
    );
    pdus.load(Ordering::SeqCst)
}

/// One act at one step of one conversation.
#[derive(Clone, Debug)]
struct Job {
    protocol: Protocol,
    conversation: Conversation,
    act: Act,
    step: usize,
    digests: bool,
    seed: u64,
}

impl Job {
    /// Has the conversation; whether all of it went well.
    fn run(&self, server: &Server) -> bool {
        let Self {
            protocol,
            act,
            step,
            seed,
            ..
        } = *self;
        let countdown = Arc::new(AtomicUsize::new(step + 1));
        let relay = Relay::start(portal(server, protocol), move |direction| match direction {
            Direction::ToServer => untouched(),
            Direction::ToClient => Box::new(Rude {
                protocol,
                framing: Framing::new(protocol),
                digests: Digests::default(),
                act,
                countdown: Arc::clone(&countdown),
                random: Random::new(seed),
            }),
        })
        .expect("a relay");
        let began = Instant::now();
        let went_well = self
            .conversation
            .hold(protocol, relay.address(), self.digests, true);
        let took = began.elapsed();
        assert!(took < LIMIT, "{self:?} took {took:?}");
        let panics = panics();
        assert!(panics.is_empty(), "{self:?}, or one beside it: {panics:?}");
        went_well
    }
}

/// Every act, at steps of every conversation that are drawn by lot.
#[test]
fn no_act_of_a_server_at_any_step_makes_a_client_panic_or_hang() {
    watch_for_panics();
    let server = honest_server();
    let mut random = Random::new(seed());
    let most = number_from("LONGSHORE_RUDE_STEPS", STEPS);
    let mut jobs = Vec::new();
    for protocol in BOTH {
        for conversation in CONVERSATIONS {
            let steps = length(&server, protocol, conversation);
            println!("{protocol:?} {conversation:?}: {steps} PDUs of the server");
            for act in acts::all(protocol) {
                // A discovery is short, and acts that take patience take time.
                let most = match (most, conversation) {
                    (0, _) => steps,
                    (_, Conversation::Discover) => 1,
                    _ if act.takes_patience() => most.div_ceil(2),
                    _ => most,
                };
                for number in 0..most {
                    let bound = u64::try_from(steps).expect("few steps");
                    let drawn = usize::try_from(random.below(bound)).expect("few steps");
                    jobs.push(Job {
                        protocol,
                        conversation,
                        act,
                        step: if most == steps { number } else { drawn },
                        digests: random.below(3) == 0,
                        seed: random.next(),
                    });
                }
            }
        }
    }
    println!("{} conversations", jobs.len());
    side_by_side(&jobs, 12, |job| {
        job.run(&server);
    });
    // The server served all of them, and still does.
    for protocol in BOTH {
        length(&server, protocol, Conversation::Volume);
    }
}

/// PDUs of our server before its first C2HData: ICResp, and the responses of Connect and of properties.
const PROPERTIES_END: usize = 8;

/// The end of a connection at a property, also at one that the host can do without.
#[test]
fn an_end_at_each_property_is_an_error_of_the_verb_that_reads_it() {
    watch_for_panics();
    let server = honest_server();
    let acts = [Act::Terminate, Act::Type(0x07), Act::Type(0x04), Act::Close];
    let jobs: Vec<Job> = (0..PROPERTIES_END)
        .flat_map(|step| acts.map(|act| (step, act)))
        .map(|(step, act)| Job {
            protocol: Protocol::NvmeTcp,
            conversation: Conversation::Attach,
            act,
            step,
            digests: false,
            seed: 1,
        })
        .collect();
    side_by_side(&jobs, 8, |job| {
        assert!(!job.run(&server), "{job:?} is an error");
    });
}
