//! The network between well-behaved hosts and the server, and what befalls it: bits that flip, connections that are cut,
//! bytes that stand still.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use longshore_tests::proxy::Direction;
use longshore_tests::random::Random;
use longshore_tests::relay::{Flips, Passed, Relay, Tamper};

/// On average one bit of so many bytes flips.
const SPACING: u64 = 3 << 20;

/// Relays in front of both protocols.
pub struct Network {
    pub iscsi: Relay,
    pub nvme: Relay,
    weather: Arc<Weather>,
}

/// What happens to bytes now.
#[derive(Debug, Default)]
struct Weather {
    flips: AtomicBool,
    stalls: AtomicBool,
    /// Grows by one for each cut; connections that are older end with the next bytes.
    cuts: AtomicU64,
    connections: AtomicU64,
    flipped: AtomicU64,
}

impl Network {
    /// In front of a server that listens, or will listen, at these addresses.
    pub fn start(iscsi: SocketAddr, nvme: SocketAddr, seed: u64) -> Result<Self> {
        let weather = Arc::new(Weather::default());
        let relay = |address, seed| {
            let weather = Arc::clone(&weather);
            Relay::start(address, move |direction| {
                Box::new(Path::new(&weather, direction, seed))
            })
        };
        Ok(Self {
            iscsi: relay(iscsi, seed)?,
            nvme: relay(nvme, seed ^ 1)?,
            weather,
        })
    }

    pub fn flip(&self, flips: bool) {
        self.weather.flips.store(flips, Ordering::SeqCst);
    }

    pub fn stall(&self, stalls: bool) {
        self.weather.stalls.store(stalls, Ordering::SeqCst);
    }

    /// Ends all connections, with the bytes that are on their way.
    pub fn cut(&self) {
        self.weather.cuts.fetch_add(1, Ordering::SeqCst);
    }

    /// Pieces in which bits were flipped.
    pub fn flipped(&self) -> u64 {
        self.weather.flipped.load(Ordering::SeqCst)
    }
}

/// One direction of a connection.
struct Path {
    weather: Arc<Weather>,
    flips: Flips,
    cuts: u64,
}

impl Path {
    fn new(weather: &Arc<Weather>, direction: Direction, seed: u64) -> Self {
        let number = weather.connections.fetch_add(1, Ordering::SeqCst);
        let mut random =
            Random::new(seed ^ number << 8 ^ u64::from(direction == Direction::ToServer));
        Self {
            weather: Arc::clone(weather),
            flips: Flips::new(random.next(), SPACING),
            cuts: weather.cuts.load(Ordering::SeqCst),
        }
    }
}

impl Tamper for Path {
    fn pass(&mut self, bytes: &[u8]) -> Passed {
        while self.weather.stalls.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.weather.cuts.load(Ordering::SeqCst) != self.cuts {
            return Passed::Last(Vec::new());
        }
        if !self.weather.flips.load(Ordering::SeqCst) {
            return Passed::On(bytes.to_vec());
        }
        let passed = self.flips.pass(bytes);
        if passed != Passed::On(bytes.to_vec()) {
            self.weather.flipped.fetch_add(1, Ordering::SeqCst);
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_until_the_connection_is_cut_and_flips_are_counted() {
        let weather = Arc::new(Weather::default());
        let mut path = Path::new(&weather, Direction::ToServer, 7);
        let bytes = vec![0; 1 << 20];
        assert_eq!(path.pass(&bytes), Passed::On(bytes.clone()));
        weather.flips.store(true, Ordering::SeqCst);
        let changed = (0..30).filter(|_| path.pass(&bytes) != Passed::On(bytes.clone()));
        let changed = u64::try_from(changed.count()).unwrap();
        assert!(changed > 0);
        assert_eq!(weather.flipped.load(Ordering::SeqCst), changed);
        weather.cuts.store(1, Ordering::SeqCst);
        assert_eq!(path.pass(&bytes), Passed::Last(Vec::new()));
        // Connections made after the cut are not concerned.
        weather.flips.store(false, Ordering::SeqCst);
        let mut later = Path::new(&weather, Direction::ToClient, 7);
        assert_eq!(later.pass(&bytes), Passed::On(bytes.clone()));
    }
}
