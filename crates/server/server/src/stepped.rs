//! A server without threads; a simulation takes its turns: the same shards as in production, on a
//! network, a disk and a clock that a simulator makes up.

use std::sync::Arc;
use std::time::Instant;

use longshore_reactor::{BufferPool, EngineEvent, MemoryBudget, Waker};
use longshore_volume::VolumeError;

use crate::config::{ExportsConfig, ServerConfig, StartError};
use crate::core::{Core, Shared, View};
use crate::mail::mailbox::post_box;
use crate::mail::message::{Message, Post};
use crate::platform::{Link, Platform};
use crate::server::share::{kept_bytes_max, listeners, share};
use crate::server::switch::{DrainOptions, DrainingVolume, SwitchError, Switchboard, Switched};
use crate::server::{Control, Resized};
use crate::shard::mail::Mailer;
use crate::shard::{Shard, Turn};

/// See the module documentation.
#[derive(Debug)]
pub struct SteppedServer {
    shared: Arc<Shared>,
    board: Arc<Switchboard>,
    shards: Vec<Shard>,
    budget: Arc<MemoryBudget>,
}

/// What a shard waits for after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Events, mail from other shards, or that time.
    Wait(Option<Instant>),
    /// Nothing: it has ended.
    Ended,
}

impl SteppedServer {
    /// A server with a shard for each platform. Listeners of the configuration are not listened on,
    /// but told to initiators.
    ///
    /// # Errors
    /// As those of [`crate::Server::start`].
    pub fn new(
        mut config: ServerConfig,
        platforms: Vec<Box<dyn Platform>>,
        now: Instant,
    ) -> Result<Self, StartError> {
        let system = |operation| move |source| StartError::System { operation, source };
        let (listeners, _) = listeners(&mut config)?;
        let mut posts = Vec::new();
        let mut mailers = Vec::new();
        let mut inboxes = Vec::new();
        for _ in &platforms {
            let (mailer, inbox) = post_box(Waker::new().map_err(system("eventfd"))?);
            posts.push(Post::new(mailer.clone()));
            mailers.push(mailer);
            inboxes.push(inbox);
        }
        let (shared, registry) = share(config, listeners, posts)?;
        let first = Arc::clone(registry.current());
        let budget = Arc::clone(&shared.budget);
        let kept = kept_bytes_max(&budget, platforms.len());
        let mailers: Arc<[Mailer]> = mailers.into();
        let board = Switchboard::new(&shared, registry, &mailers, false);
        let shards = platforms.into_iter().zip(inboxes).enumerate();
        let shards = shards.map(|(index, (platform, inbox))| {
            let pool = BufferPool::new(Arc::clone(&budget), kept);
            let core = Core::new(index, View::new(&shared, &first), platform, pool, now);
            Shard::new(core, inbox, Arc::clone(&mailers), None, now)
        });
        Ok(Self {
            shards: shards.collect(),
            shared,
            board,
            budget,
        })
    }

    /// Whether a shard has mail and should take a turn.
    #[must_use]
    pub fn has_mail(&self, shard: usize) -> bool {
        self.shards[shard].has_mail()
    }

    /// Storage requests of all shards that have not ended.
    #[must_use]
    pub fn requests_in_flight(&self) -> usize {
        self.shards.iter().map(Shard::requests_in_flight).sum()
    }

    /// Bytes of payload memory that tasks hold. Zero when nothing is in progress.
    #[must_use]
    pub fn memory_in_use(&self) -> usize {
        let kept: usize = self.shards.iter().map(Shard::kept_bytes).sum();
        self.budget.used_bytes() - kept
    }

    /// What all buffers of this server count against; it outlives the server.
    #[must_use]
    pub fn memory_budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Gives a shard a new connection, which came in by that listener: first
    /// those of iSCSI are counted, then those of NVMe/TCP. The link is told its token when
    /// the shard takes it up.
    pub fn accept(&self, shard: usize, link: Box<dyn Link>, portal: usize) {
        self.shared.give(shard, link, portal);
    }

    /// Has a shard send one of its connections to another one, by its place among those that move. Returns
    /// whether it begins to; it should take a turn then.
    pub fn move_connection(&mut self, shard: usize, index: usize, to: usize, now: Instant) -> bool {
        self.shards[shard].relocate_any(index, to, now)
    }

    /// Takes a turn of a shard. [`EngineEvent::Woken`] among the events has it read its mail.
    pub fn turn(&mut self, shard: usize, events: &mut Vec<EngineEvent>, now: Instant) -> Next {
        let shard = &mut self.shards[shard];
        match shard.turn(events, shard.moment(now)) {
            Turn::Wait(deadline) => Next::Wait(deadline),
            Turn::Ended => Next::Ended,
        }
    }

    /// What becomes of a shard that cannot wait for events any more. It takes no further turn.
    pub fn fail(&mut self, shard: usize) {
        self.shards[shard].fail();
    }

    /// Begins to export something else. Shards that have mail afterwards should take turns, and
    /// [`Self::advance`] be called between them until [`Self::is_switching`] says no.
    ///
    /// # Errors
    /// As those of [`crate::Control::switch`].
    pub fn switch(
        &self,
        exports: ExportsConfig,
        drain: DrainOptions,
    ) -> Result<Switched, SwitchError> {
        self.board.begin(exports, drain)
    }

    /// Takes up the size of a volume, as [`crate::Control::refresh_volume`] does.
    #[must_use]
    pub fn refresh_volume(&self, name: &str) -> Option<Result<Option<Resized>, VolumeError>> {
        let board = Arc::clone(&self.board);
        Control { board }.refresh_volume(name)
    }

    /// Takes the steps of switches and removals that can be taken.
    pub fn advance(&self) {
        self.board.advance();
    }

    /// Whether not all shards export what they are to.
    #[must_use]
    pub fn is_switching(&self) -> bool {
        self.board.is_switching()
    }

    /// Volumes that have been removed and are not closed yet.
    #[must_use]
    pub fn draining(&self) -> Vec<DrainingVolume> {
        self.board.draining()
    }

    /// Begins an orderly end.
    pub fn shut_down(&self) {
        self.shared
            .closing
            .store(true, std::sync::atomic::Ordering::Relaxed);
        self.shared.broadcast(|| Message::Shutdown);
    }
}
