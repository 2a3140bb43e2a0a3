//! What is looked at, and how: state without a terminal.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};

use longshore_api::pool::Pool;
use longshore_api::rates::{ConnectionRates, Rates, VolumeRates};
use longshore_api::sample::Sample;
use longshore_api::state::{Event, Session};

/// Samples of a sparkline.
pub const HISTORY: usize = 60;
/// Events that are shown at most.
const EVENTS_MAX: usize = 500;

/// What the server said at one moment, or why nothing came.
#[derive(Clone, Debug)]
pub enum Update {
    Sample {
        sample: Box<Sample>,
        sessions: Vec<Session>,
        pools: Vec<Pool>,
        events: Vec<Event>,
    },
    Gone(String),
    /// What came of an order.
    Told(String),
}

/// The pages, in the order of their tabs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    #[default]
    Volumes,
    Sessions,
    Cores,
    Stages,
    Pools,
    Events,
}

impl View {
    pub const ALL: [Self; 6] = [
        Self::Volumes,
        Self::Sessions,
        Self::Cores,
        Self::Stages,
        Self::Pools,
        Self::Events,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Volumes => "volumes",
            Self::Sessions => "sessions",
            Self::Cores => "cores",
            Self::Stages => "stages",
            Self::Pools => "pools",
            Self::Events => "events",
        }
    }

    #[must_use]
    pub const fn key(self) -> char {
        match self {
            Self::Volumes => 'v',
            Self::Sessions => 's',
            Self::Cores => 'c',
            Self::Stages => 'g',
            Self::Pools => 'l',
            Self::Events => 'e',
        }
    }
}

/// What volumes and sessions are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Operations,
    Bytes,
    Latency,
    Name,
}

impl Sort {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operations => "operations",
            Self::Bytes => "bytes",
            Self::Latency => "latency",
            Self::Name => "name",
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::Operations => Self::Bytes,
            Self::Bytes => Self::Latency,
            Self::Latency => Self::Name,
            Self::Name => Self::Operations,
        }
    }
}

/// What keys do beside moving about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Look,
    /// The filter is being typed.
    Filter,
    Help,
    /// The selected row with everything known of it.
    Detail,
    /// Whether the session of this id is to be closed.
    Close(String),
}

/// A key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Enter,
    Escape,
    Backspace,
    Tab,
    Interrupt,
}

/// What is to be done about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    Nothing,
    Quit,
    CloseSession(String),
    /// Milliseconds from now on.
    Interval(u64),
}

const INTERVAL_MIN_MS: u64 = 250;
const INTERVAL_MAX_MS: u64 = 60_000;

/// What a pool writes, in bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolRates {
    /// That hosts wrote to its volumes.
    pub host: f64,
    /// That the pool wrote on its drives for it, and to move old data.
    pub drives: f64,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct App {
    pub server: String,
    pub interval_ms: u64,
    pub view: View,
    pub sort: Sort,
    pub mode: Mode,
    pub filter: String,
    pub only_active: bool,
    pub is_paused: bool,
    pub selected: usize,
    pub gone: Option<String>,
    /// What came of the last order.
    pub told: Option<String>,
    pub last: Option<Sample>,
    /// `None`: there are not two samples of one process yet.
    pub rates: Option<Rates>,
    pub sessions: Vec<Session>,
    pub pools: Vec<Pool>,
    /// What pools wrote in the last interval, by UUID.
    pub pool_rates: HashMap<String, PoolRates>,
    pub events: VecDeque<Event>,
    /// Operations of the last samples, by volume.
    pub history: HashMap<String, VecDeque<u64>>,
    pub has_colors: bool,
}

impl App {
    #[must_use]
    pub fn new(server: String, interval_ms: u64) -> Self {
        Self {
            server,
            interval_ms,
            view: View::default(),
            sort: Sort::default(),
            mode: Mode::default(),
            filter: String::new(),
            only_active: false,
            is_paused: false,
            selected: 0,
            gone: None,
            told: None,
            last: None,
            rates: None,
            sessions: Vec::new(),
            pools: Vec::new(),
            pool_rates: HashMap::new(),
            events: VecDeque::new(),
            history: HashMap::new(),
            has_colors: true,
        }
    }

    /// Takes in what the server said.
    pub fn update(&mut self, update: Update) {
        match update {
            Update::Gone(reason) => {
                self.gone = Some(reason);
                self.rates = None;
            }
            Update::Told(outcome) => self.told = Some(outcome),
            Update::Sample {
                sample,
                sessions,
                pools,
                events,
            } => self.take(*sample, sessions, pools, events),
        }
    }

    fn take(
        &mut self,
        sample: Sample,
        sessions: Vec<Session>,
        pools: Vec<Pool>,
        events: Vec<Event>,
    ) {
        self.gone = None;
        self.events.extend(events);
        while self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
        let is_same =
            |last: &Sample| (last.pid, last.monotonic_ns) == (sample.pid, sample.monotonic_ns);
        // The server gives an answer again for a second.
        if self.is_paused || self.last.as_ref().is_some_and(is_same) {
            return;
        }
        self.sessions = sessions;
        let earlier = std::mem::replace(&mut self.pools, pools);
        let before = self.last.replace(sample);
        let now = self.last.as_ref();
        self.rates = before
            .as_ref()
            .zip(now)
            .and_then(|(before, now)| Rates::between(before, now));
        self.pool_rates = match (&before, now) {
            (Some(before), Some(now)) if self.rates.is_some() => {
                let ns = now.monotonic_ns.saturating_sub(before.monotonic_ns);
                rates_of_pools(&earlier, &self.pools, ns)
            }
            _ => HashMap::new(),
        };
        let Some(rates) = &self.rates else {
            self.history.clear();
            return;
        };
        let names: Vec<&str> = rates.volumes.iter().map(|it| it.name.as_str()).collect();
        self.history
            .retain(|name, _| names.contains(&name.as_str()));
        for volume in &rates.volumes {
            let history = self.history.entry(volume.name.clone()).or_default();
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(whole(volume.operations()));
        }
    }

    /// Does what a key asks for.
    pub fn press(&mut self, key: Key) -> Order {
        if key == Key::Interrupt {
            return Order::Quit;
        }
        match &mut self.mode {
            Mode::Filter => {
                match key {
                    Key::Char(letter) => self.filter.push(letter),
                    Key::Backspace => {
                        self.filter.pop();
                    }
                    Key::Escape => {
                        self.filter.clear();
                        self.mode = Mode::Look;
                    }
                    Key::Enter => self.mode = Mode::Look,
                    _ => {}
                }
                self.selected = 0;
                Order::Nothing
            }
            Mode::Help | Mode::Detail => {
                self.mode = Mode::Look;
                Order::Nothing
            }
            Mode::Close(id) => {
                let id = id.clone();
                self.mode = Mode::Look;
                match key {
                    Key::Char('y') => Order::CloseSession(id),
                    _ => Order::Nothing,
                }
            }
            Mode::Look => self.look(key),
        }
    }

    fn look(&mut self, key: Key) -> Order {
        self.told = None;
        let rows = self.rows();
        match key {
            Key::Char('q') => return Order::Quit,
            Key::Char('?' | 'h') => self.mode = Mode::Help,
            Key::Char('/') => self.mode = Mode::Filter,
            Key::Char('o') => self.sort = self.sort.next(),
            Key::Char('a') => self.only_active = !self.only_active,
            Key::Char('p' | ' ') => self.is_paused = !self.is_paused,
            Key::Char('+') => {
                self.interval_ms = (self.interval_ms * 2).min(INTERVAL_MAX_MS);
                return Order::Interval(self.interval_ms);
            }
            Key::Char('-') => {
                self.interval_ms = (self.interval_ms / 2).max(INTERVAL_MIN_MS);
                return Order::Interval(self.interval_ms);
            }
            Key::Char('x') if self.view == View::Sessions => {
                if let Some(session) = self.shown_sessions().get(self.selected) {
                    self.mode = Mode::Close(session.id.clone());
                }
            }
            Key::Char(letter) => {
                let view = View::ALL.into_iter().find(|view| view.key() == letter);
                let number = letter.to_digit(10).map(|digit| digit as usize);
                let by_number = number.and_then(|number| View::ALL.get(number.checked_sub(1)?));
                if let Some(view) = view.or(by_number.copied()) {
                    self.view = view;
                    self.selected = 0;
                }
            }
            Key::Tab => {
                let place = View::ALL.iter().position(|view| *view == self.view);
                let next = place.map_or(0, |place| (place + 1) % View::ALL.len());
                self.view = View::ALL[next];
                self.selected = 0;
            }
            Key::Up => self.selected = self.selected.saturating_sub(1),
            Key::PageUp => self.selected = self.selected.saturating_sub(10),
            Key::Down => self.selected = (self.selected + 1).min(rows.saturating_sub(1)),
            Key::PageDown => self.selected = (self.selected + 10).min(rows.saturating_sub(1)),
            Key::Enter
                if rows > 0
                    && matches!(self.view, View::Volumes | View::Sessions | View::Pools) =>
            {
                self.mode = Mode::Detail;
            }
            Key::Escape => self.filter.clear(),
            Key::Enter | Key::Backspace | Key::Interrupt => {}
        }
        Order::Nothing
    }

    /// Rows of the page.
    fn rows(&self) -> usize {
        match self.view {
            View::Volumes => self.shown_volumes().len(),
            View::Sessions => self.shown_sessions().len(),
            View::Pools => self.shown_pools().len(),
            View::Cores | View::Stages => 0,
            View::Events => self.events.len(),
        }
    }

    fn passes(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// The volumes that are shown, in their order.
    #[must_use]
    pub fn shown_volumes(&self) -> Vec<VolumeRates> {
        let known = match (&self.rates, &self.last) {
            (Some(rates), _) => rates.volumes.clone(),
            // Without rates: the names at least.
            (None, Some(sample)) => sample.volumes.iter().map(only_name).collect(),
            (None, None) => Vec::new(),
        };
        let is_shown = |volume: &VolumeRates| {
            self.passes(&volume.name) && (!self.only_active || volume.operations() > 0.0)
        };
        let mut shown: Vec<VolumeRates> = known.into_iter().filter(is_shown).collect();
        let bytes = |volume: &VolumeRates| volume.read_bytes + volume.written_bytes;
        shown.sort_by(|a, b| {
            let order = match self.sort {
                Sort::Operations => b.operations().total_cmp(&a.operations()),
                Sort::Bytes => bytes(b).total_cmp(&bytes(a)),
                Sort::Latency => b.mean_ns.cmp(&a.mean_ns),
                Sort::Name => Ordering::Equal,
            };
            order.then_with(|| a.name.cmp(&b.name))
        });
        shown
    }

    /// The sessions that are shown, in their order.
    #[must_use]
    pub fn shown_sessions(&self) -> Vec<Session> {
        let is_shown = |session: &Session| {
            let passes = self.passes(&session.peer_name) || self.passes(&session.target);
            let active = !self.only_active || self.session_rates(session).operations > 0.0;
            (passes || session.addresses.iter().any(|it| self.passes(it))) && active
        };
        let mut shown: Vec<Session> = self
            .sessions
            .iter()
            .filter(|it| is_shown(it))
            .cloned()
            .collect();
        let bytes = |rates: &ConnectionRates| rates.received_bytes + rates.sent_bytes;
        shown.sort_by(|a, b| {
            let (x, y) = (self.session_rates(a), self.session_rates(b));
            let order = match self.sort {
                Sort::Operations | Sort::Latency => y.operations.total_cmp(&x.operations),
                Sort::Bytes => bytes(&y).total_cmp(&bytes(&x)),
                Sort::Name => Ordering::Equal,
            };
            order
                .then_with(|| a.peer_name.cmp(&b.peer_name))
                .then_with(|| a.id.cmp(&b.id))
        });
        shown
    }

    /// The pools that are shown, in their order.
    #[must_use]
    pub fn shown_pools(&self) -> Vec<&Pool> {
        let is_active = |pool: &&Pool| {
            let rates = self.rates_of_pool(pool).unwrap_or_default();
            !self.only_active || rates.drives > 0.0
        };
        let pools = self.pools.iter().filter(|pool| self.passes(&pool.name));
        let mut shown: Vec<&Pool> = pools.filter(is_active).collect();
        if matches!(self.sort, Sort::Operations | Sort::Bytes) {
            let bytes = |pool: &Pool| self.rates_of_pool(pool).unwrap_or_default().drives;
            // Those that write alike stay in the order of their names.
            shown.sort_by(|a, b| bytes(b).total_cmp(&bytes(a)));
        }
        shown
    }

    /// `None`: it was not open, or there are not two samples yet.
    #[must_use]
    pub fn rates_of_pool(&self, pool: &Pool) -> Option<PoolRates> {
        self.pool_rates.get(pool.uuid.as_ref()?).copied()
    }

    /// What the connections of a session do together.
    #[must_use]
    pub fn session_rates(&self, session: &Session) -> ConnectionRates {
        let mut sum = ConnectionRates::default();
        let connections = self.rates.iter().flat_map(|rates| &rates.connections);
        for connection in connections.filter(|it| session.addresses.contains(&it.peer)) {
            sum.operations += connection.operations;
            sum.received_bytes += connection.received_bytes;
            sum.sent_bytes += connection.sent_bytes;
            sum.pending_bytes += connection.pending_bytes;
        }
        sum
    }
}

/// Rates of the pools that were open both times.
#[allow(clippy::cast_precision_loss)] // Bytes in an interval are far below 2^53.
fn rates_of_pools(before: &[Pool], now: &[Pool], ns: u64) -> HashMap<String, PoolRates> {
    let seconds = ns as f64 / 1e9;
    let rates = now.iter().filter_map(|pool| {
        let earlier = before.iter().find(|it| it.uuid == pool.uuid)?;
        let (from, to) = (earlier.usage?, pool.usage?);
        // A pool that was opened anew counts from zero.
        let host = to.host_bytes.checked_sub(from.host_bytes)?;
        let drives = to.record_bytes.checked_sub(from.record_bytes)?;
        let rates = PoolRates {
            host: host as f64 / seconds,
            drives: drives as f64 / seconds,
        };
        Some((pool.uuid.clone()?, rates))
    });
    rates.filter(|_| ns > 0).collect()
}

fn only_name(volume: &longshore_api::sample::Volume) -> VolumeRates {
    VolumeRates {
        name: volume.name.clone(),
        errors: volume.errors,
        ..VolumeRates::default()
    }
}

/// A rate as a whole number.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Rates are positive and far below 2^64.
pub(crate) fn whole(rate: f64) -> u64 {
    rate.max(0.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app() -> App {
        App::new("/run/s".to_owned(), 1000)
    }

    #[test]
    fn keys_choose_pages_and_ask_before_a_session_is_closed() {
        let mut app = app();
        app.sessions.push(Session {
            id: "7".to_owned(),
            protocol: "iscsi".to_owned(),
            peer_name: "iqn.a".to_owned(),
            addresses: Vec::new(),
            target: "iqn.t".to_owned(),
            connections: 1,
            since_ms: 0,
            volumes: Vec::new(),
        });
        for view in View::ALL {
            assert_eq!(app.press(Key::Char(view.key())), Order::Nothing);
            assert_eq!(app.view, view);
        }
        app.press(Key::Char('2'));
        assert_eq!(app.view, View::Sessions);
        app.press(Key::Char('x'));
        assert_eq!(app.press(Key::Char('n')), Order::Nothing);
        app.press(Key::Char('x'));
        let order = app.press(Key::Char('y'));
        assert_eq!(order, Order::CloseSession("7".to_owned()));
        assert_eq!(app.press(Key::Char('q')), Order::Quit);
    }

    #[test]
    fn a_filter_is_typed_and_keeps_keys_from_other_uses() {
        let mut app = app();
        for key in "/qx".chars().map(Key::Char) {
            assert_eq!(app.press(key), Order::Nothing);
        }
        app.press(Key::Enter);
        assert_eq!((app.filter.as_str(), &app.mode), ("qx", &Mode::Look));
        app.press(Key::Escape);
        assert!(app.filter.is_empty());
    }

    #[test]
    fn intervals_stay_in_bounds() {
        let mut app = app();
        for _ in 0..20 {
            app.press(Key::Char('-'));
        }
        assert_eq!(app.interval_ms, INTERVAL_MIN_MS);
        for _ in 0..20 {
            app.press(Key::Char('+'));
        }
        assert_eq!(app.interval_ms, INTERVAL_MAX_MS);
    }

    #[test]
    fn a_server_that_was_started_anew_shows_no_rates_at_first() {
        let mut app = app();
        let sample = |pid, seconds: u64| Update::Sample {
            sample: Box::new(Sample {
                pid,
                uptime_ms: seconds * 1000,
                monotonic_ns: seconds * 1_000_000_000,
                ..Sample::default()
            }),
            sessions: Vec::new(),
            pools: Vec::new(),
            events: Vec::new(),
        };
        app.update(sample(1, 10));
        assert!(app.rates.is_none());
        app.update(sample(1, 11));
        assert!(app.rates.is_some());
        app.update(Update::Gone("no server".to_owned()));
        assert!(app.rates.is_none() && app.gone.is_some());
        app.update(sample(2, 12));
        assert!(app.rates.is_none() && app.gone.is_none());
    }
}
