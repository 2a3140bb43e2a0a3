//! The admin queue of a controller: Connect, properties, Identify, log pages, features; each command waits for
//! its answer up to a deadline.
//!
//! ```text
//!  TCP ─► ICReq, ICResp ─► Connect ─► CC.EN, CSTS.RDY ─► Identify Controller ─► features ─► …
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use longshore_nvme::auth::{Parties, QueueChannel};
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::commands::{self, ANY_CONTROLLER, Connect, Property};
use longshore_nvme::host::{Command, ConnectionConfig};
use longshore_nvme::nqn::Nqn;
use longshore_nvme::pdu::Digests;
use longshore_nvme::psk::{Origin, RetainedPsk, TlsPsk, Version};
use longshore_nvme::status::Status;

use super::authentication::Proof;
use super::failure::{RetryDelays, failure, link_error};
use super::identify::{
    CommandLimits, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, NamespaceDescriptors,
    cns, namespace_list,
};
use super::identity::HostIdentity;
use super::link::{Answer, Deadline, Link, LinkError};
use super::log_page::{ANA_GROUPS_ONLY, HEALTH_BYTES, Health, ana_log_bytes, ana_state, lid};
use super::refusal;
use super::secure::Ends;
use crate::error::{Error, Failure};
use crate::info::AccessState;
use crate::options::Options;
use crate::url::HostPort;

/// Entries of an admin queue: the least that Connect takes.
const ADMIN_ENTRIES: u16 = 32;

/// However long a controller says it needs to become ready, so long is waited at most.
const READY_LIMIT: Duration = Duration::from_secs(120);

mod feature {
    pub(super) const NUMBER_OF_QUEUES: u8 = 0x07;
    pub(super) const ASYNC_EVENTS: u8 = 0x0b;
    pub(super) const HOST_BEHAVIOR: u8 = 0x16;
}

/// CAP, the property at offset 0 (NVMe base §3.1.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    fn bits(self, low: u32, count: u32) -> u32 {
        let field = self.0 >> low & ((1 << count) - 1);
        u32::try_from(field).expect("fields have at most 32 bits")
    }

    /// MQES, as a true count: entries of a queue.
    #[must_use]
    pub fn queue_entries(self) -> u32 {
        self.bits(0, 16) + 1
    }

    /// TO: how long becoming ready takes at most.
    #[must_use]
    pub fn ready_limit(self) -> Duration {
        Duration::from_millis(u64::from(self.bits(24, 8)) * 500)
    }

    /// CRMS.CRWMS: the Controller Ready Timeouts property says how long becoming ready takes.
    fn has_ready_timeouts(self) -> bool {
        self.bits(59, 1) != 0
    }

    /// MPSMIN: the smallest page has 2^(12 + it) bytes.
    #[must_use]
    pub fn page_exponent(self) -> u8 {
        u8::try_from(self.bits(48, 4)).expect("four bits")
    }

    /// CC with EN: entries of 64 and 16 bytes, the smallest page, the NVM command set, or all there are where
    /// that is the only choice.
    fn configuration(self) -> u64 {
        const ENABLE: u64 = 1;
        const ENTRIES: u64 = 0x46 << 16;
        let has = |bit: u32| self.bits(37, 8) & 1 << bit != 0;
        let command_sets: u64 = if !has(0) && has(6) { 0b110 } else { 0 };
        ENTRIES | u64::from(self.page_exponent()) << 7 | command_sets << 4 | ENABLE
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ControllerStatus(pub(super) u64);

impl ControllerStatus {
    pub(super) const fn is_ready(self) -> bool {
        self.0 & 1 != 0
    }

    /// CFS: only a reset helps.
    pub(super) const fn is_fatal(self) -> bool {
        self.0 & 1 << 1 != 0
    }

    /// SHST: it is shutting down, or has.
    pub(super) const fn is_shutting_down(self) -> bool {
        self.0 >> 2 & 3 != 0
    }

    const fn is_shut_down(self) -> bool {
        self.0 >> 2 & 3 == 2
    }
}

/// The admin queue of a controller. See the module documentation.
#[derive(Debug)]
pub struct Admin {
    pub(super) link: Link,
    portal: HostPort,
    address: SocketAddr,
    identity: HostIdentity,
    subsystem: Nqn,
    options: Options,
    /// The key for TLS that was made of the authentication.
    made: Option<TlsPsk>,
    controller_id: u16,
    capabilities: Capabilities,
    version: u32,
    /// KATO, as it was asked for.
    keep_alive: Duration,
    delays: RetryDelays,
}

/// Which digests to ask for.
pub(super) fn digests(options: &Options) -> Digests {
    Digests {
        header: options.header_digest.is_asked_for(),
        data: options.data_digest.is_asked_for(),
    }
}

impl Admin {
    /// Connects the admin queue of a new controller of `subsystem`, and enables the controller. If a key for TLS is made of
    /// the authentication, the queue is connected again, with that key.
    ///
    /// # Errors
    /// Says where it failed, and what to do next.
    pub fn connect(
        portal: &HostPort,
        subsystem: &Nqn,
        keep_alive: Duration,
        options: &Options,
    ) -> Result<Self, Error> {
        let identity = HostIdentity::choose(options.host_nqn.as_ref(), options.host_id);
        let to = (portal, subsystem);
        let (admin, made) = Self::open(to, keep_alive, options, (&identity, None))?;
        let mut admin = match made {
            None => admin,
            Some(made) => {
                drop(admin);
                let key = made.tls_psk(&identity.nqn, subsystem, Version::V1, Origin::Generated);
                let key = key.map_err(|error| Error::Options(error.to_string()))?;
                Self::open(to, keep_alive, options, (&identity, Some(key)))?.0
            }
        };
        admin.enable()?;
        Ok(admin)
    }

    /// One connection, over TLS if there is a key. Returns the key that was made on it.
    fn open(
        (portal, subsystem): (&HostPort, &Nqn),
        keep_alive: Duration,
        options: &Options,
        (identity, made): (&HostIdentity, Option<TlsPsk>),
    ) -> Result<(Self, Option<RetainedPsk>), Error> {
        let (stream, address) = crate::connect::connect(portal, options.timeouts.connect)?;
        let deadline = Deadline::after(options.timeouts.login);
        let config = ConnectionConfig {
            digests: digests(options),
            hpda: options.nvme.hpda.min(31),
            max_r2t: options.nvme.max_r2t.max(1),
            commands: ADMIN_ENTRIES - 1,
            ..ConnectionConfig::default()
        };
        let ends = Ends {
            portal,
            host: &identity.nqn,
            subsystem,
        };
        let channel = ends.channel(stream, options, made.as_ref(), deadline)?;
        let link = Link::open(channel, config, deadline)
            .map_err(|error| link_error(portal, "initialization", error))?;
        require_digests(portal, options, link.connection().digests())?;
        let mut admin = Self {
            link,
            portal: portal.clone(),
            address,
            identity: identity.clone(),
            subsystem: subsystem.clone(),
            options: options.clone(),
            made,
            controller_id: ANY_CONTROLLER,
            capabilities: Capabilities(0),
            version: 0,
            keep_alive,
            delays: RetryDelays::default(),
        };
        let mut connect = admin.connect_command(0, ADMIN_ENTRIES);
        connect.keep_alive_ms = u32::try_from(keep_alive.as_millis()).unwrap_or(u32::MAX);
        let answer = admin
            .link
            .run(&connect.command(), &connect.data(), deadline)
            .map_err(|error| admin.lost("Connect", error))?;
        let made = admin.take_connect(&answer)?;
        Ok((admin, made))
    }

    fn take_connect(&mut self, answer: &Answer) -> Result<Option<RetainedPsk>, Error> {
        let demand = refusal::check(&self.portal, &self.subsystem, answer)?;
        let [low, high, ..] = answer.result.to_le_bytes();
        self.controller_id = u16::from_le_bytes([low, high]);
        let channel = match (&self.made, &self.options.nvme.tls) {
            (Some(_), _) => QueueChannel::Secure,
            // A key of its own is as good.
            (None, Some(_)) => QueueChannel::Other,
            (None, None) if cfg!(feature = "tls") => QueueChannel::Plain,
            (None, None) => QueueChannel::Other,
        };
        let proof = Proof::new(&self.portal, self.parties(), &self.options);
        proof.give(&mut self.link, demand, channel)
    }

    /// A Connect command for one of its queues.
    pub(super) fn connect_command(&self, queue_id: u16, entries: u16) -> Connect {
        Connect {
            host_identifier: self.identity.id,
            host: self.identity.nqn.clone(),
            subsystem: self.subsystem.clone(),
            controller_id: self.controller_id,
            queue_id,
            entries,
            // Admin queues always have flow control.
            disable_flow_control: queue_id != 0 && !self.options.nvme.flow_control,
            keep_alive_ms: 0,
        }
    }

    /// The portal that was connected to.
    #[must_use]
    pub const fn portal(&self) -> &HostPort {
        &self.portal
    }

    /// The address it was reached at.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who we said we are.
    #[must_use]
    pub const fn identity(&self) -> &HostIdentity {
        &self.identity
    }

    /// SUBNQN, as connected to.
    #[must_use]
    pub const fn subsystem(&self) -> &Nqn {
        &self.subsystem
    }

    /// CNTLID, as the answer to Connect gives it.
    #[must_use]
    pub const fn controller_id(&self) -> u16 {
        self.controller_id
    }

    /// CAP, as read before the controller was enabled.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// VS: major in bits 31:16, minor in 15:8, tertiary in 7:0.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// KATO, as it was asked for; zero: none.
    #[must_use]
    pub const fn keep_alive(&self) -> Duration {
        self.keep_alive
    }

    /// What it was connected with.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    pub(super) const fn delays(&self) -> RetryDelays {
        self.delays
    }

    pub(super) fn lost(&self, step: &'static str, error: LinkError) -> Error {
        link_error(&self.portal, step, error)
    }

    /// The peer broke a rule.
    pub(super) fn broken(&self, step: &'static str, reason: String) -> Error {
        Error::Protocol {
            portal: self.portal.clone(),
            step,
            reason,
        }
    }

    fn failed(&self, step: &'static str, failure: Failure) -> Error {
        Error::Command {
            portal: self.portal.clone(),
            step,
            failure,
        }
    }

    /// Sends a command and waits for its answer, whatever it is.
    fn ask(&mut self, step: &'static str, command: &Command, data: &[u8]) -> Result<Answer, Error> {
        let deadline = Deadline::after(self.options.timeouts.login);
        self.link
            .run(command, data, deadline)
            .map_err(|error| self.lost(step, error))
    }

    /// Sends a command that has to succeed.
    pub(super) fn run(
        &mut self,
        step: &'static str,
        command: &Command,
        data: &[u8],
    ) -> Result<Answer, Error> {
        let answer = self.ask(step, command, data)?;
        if answer.status.is_success() {
            Ok(answer)
        } else {
            Err(self.failed(step, failure(answer.status, self.delays)))
        }
    }

    /// Reads a property.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn property(&mut self, property: Property) -> Result<u64, Error> {
        let answer = self.run("Property Get", &commands::property_get(property), &[])?;
        Ok(answer.result)
    }

    /// Sets a property.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn set_property(&mut self, property: Property, value: u64) -> Result<(), Error> {
        let set = commands::property_set(property, value);
        self.run("Property Set", &set, &[]).map(drop)
    }

    pub(super) fn status(&mut self) -> Result<ControllerStatus, Error> {
        self.property(Property::CSTS).map(ControllerStatus)
    }

    /// Reads CAP and VS, sets CC.EN and waits for CSTS.RDY.
    fn enable(&mut self) -> Result<(), Error> {
        self.capabilities = Capabilities(self.property(Property::CAP)?);
        let version = self.property(Property::VS)?;
        self.version = u32::try_from(version & 0xffff_ffff).expect("32 bits");
        let limit = self.ready_limit()?;
        // A controller of the static model may be as its last host has left it.
        let configuration = self.property(Property::CC)?;
        if configuration & 1 != 0 {
            self.set_property(Property::CC, configuration & !1)?;
            self.wait_for("being disabled", limit, |status| !status.is_ready())?;
        }
        self.set_property(Property::CC, self.capabilities.configuration())?;
        self.wait_for("becoming ready", limit, ControllerStatus::is_ready)
    }

    /// How long becoming ready may take: what the controller says, within bounds.
    ///
    /// # Errors
    /// The connection's. Where a controller refuses the property, the limit in CAP counts.
    fn ready_limit(&mut self) -> Result<Duration, Error> {
        let mut limit = self.capabilities.ready_limit();
        if self.capabilities.has_ready_timeouts() {
            match self.property(Property::CRTO) {
                // CRWMT, in units of 500 ms.
                Ok(timeouts) => {
                    limit = limit.max(Duration::from_millis((timeouts & 0xffff) * 500));
                }
                Err(error @ Error::Command { .. }) => tracing::debug!("{error}"),
                Err(error) => return Err(error),
            }
        }
        let least = self.options.timeouts.login;
        Ok(limit.clamp(least, READY_LIMIT.max(least)))
    }

    fn wait_for(
        &mut self,
        step: &'static str,
        limit: Duration,
        is_reached: impl Fn(ControllerStatus) -> bool,
    ) -> Result<(), Error> {
        const PAUSE_MAX: Duration = Duration::from_millis(100);
        let deadline = Deadline::after(limit);
        let mut pause = Duration::from_millis(1);
        loop {
            let status = self.status()?;
            if status.is_fatal() {
                let reason = "CSTS.CFS is set: it has a fatal error; check the server's log";
                return Err(self.broken(step, reason.to_owned()));
            }
            if is_reached(status) {
                return Ok(());
            }
            if deadline.left().is_none() {
                return Err(self.lost(step, LinkError::TimedOut(deadline.limit())));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// One of the data structures of Identify.
    fn identify(&mut self, step: &'static str, command: &Command) -> Result<Vec<u8>, Error> {
        let data = self.run(step, command, &[])?.data;
        self.whole(step, data, IDENTIFY_BYTES)
    }

    fn whole(&self, step: &'static str, data: Vec<u8>, length: usize) -> Result<Vec<u8>, Error> {
        if data.len() == length {
            return Ok(data);
        }
        let reason = format!("{} bytes came instead of {length}", data.len());
        Err(self.broken(step, reason))
    }

    /// Identify Controller.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn identify_controller(&mut self) -> Result<IdentifyController, Error> {
        let command = commands::identify(cns::CONTROLLER, NamespaceId::NONE);
        let page = self.identify("Identify Controller", &command)?;
        let found = IdentifyController::decode(&page);
        self.delays = RetryDelays::new(found.retry_delays);
        Ok(found)
    }

    /// Identify Namespace. One that is not active is all zeros, or an error.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn identify_namespace(&mut self, id: NamespaceId) -> Result<IdentifyNamespace, Error> {
        let command = commands::identify(cns::NAMESPACE, id);
        let page = self.identify("Identify Namespace", &command)?;
        Ok(IdentifyNamespace::decode(&page))
    }

    /// Identifiers of a namespace; none from a controller that has no such list.
    ///
    /// # Errors
    /// The connection's.
    pub fn namespace_descriptors(
        &mut self,
        id: NamespaceId,
    ) -> Result<NamespaceDescriptors, Error> {
        let command = commands::identify(cns::DESCRIPTORS, id);
        let answer = self.ask("Identify", &command, &[])?;
        Ok(if answer.status.is_success() {
            NamespaceDescriptors::decode(&answer.data)
        } else {
            NamespaceDescriptors::default()
        })
    }

    /// Limits of commands of the NVM command set; `None` from a controller that does not tell.
    ///
    /// # Errors
    /// The connection's.
    pub fn command_limits(&mut self) -> Result<Option<CommandLimits>, Error> {
        const NVM: u8 = 0;
        let cns = cns::COMMAND_SET_CONTROLLER;
        let command = commands::identify_of_command_set(cns, NamespaceId::NONE, NVM);
        let answer = self.ask("Identify", &command, &[])?;
        let is_told = answer.status.is_success() && answer.data.len() == IDENTIFY_BYTES;
        Ok(is_told.then(|| CommandLimits::decode(&answer.data)))
    }

    /// The active namespaces, the first 1024 of them.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn active_namespaces(&mut self) -> Result<Vec<NamespaceId>, Error> {
        let command = commands::identify(cns::ACTIVE_NAMESPACES, NamespaceId::NONE);
        let page = self.identify("Identify active namespaces", &command)?;
        Ok(namespace_list(&page))
    }

    /// `length` bytes of a log page from `offset` on.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn log_page(
        &mut self,
        page: u8,
        parameter: u8,
        offset: u64,
        length: u32,
    ) -> Result<Vec<u8>, Error> {
        let all = NamespaceId::BROADCAST;
        let command = commands::get_log_page_with(page, parameter, all, offset, length);
        let data = self.run("Get Log Page", &command, &[])?.data;
        let length = usize::try_from(length).expect("no log page is longer than memory");
        self.whole("Get Log Page", data, length)
    }

    /// The state of an ANA group, if the log page has it.
    ///
    /// It is read in one transfer: nvmet of Linux does not look at offsets into this page. `most`: bytes of a
    /// transfer; what does not fit is left out.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn access_state(
        &mut self,
        controller: &IdentifyController,
        group: u32,
        most: u32,
    ) -> Result<Option<AccessState>, Error> {
        let length = ana_log_bytes(controller.ana_groups, most);
        let log = self.log_page(lid::ANA, ANA_GROUPS_ONLY, 0, length)?;
        Ok(ana_state(&log, group))
    }

    /// SMART / Health Information.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn health(&mut self) -> Result<Health, Error> {
        let log = self.log_page(lid::HEALTH, 0, 0, HEALTH_BYTES)?;
        Ok(Health::decode(&log))
    }

    /// Number of Queues: how many I/O queues the controller grants of those wanted.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn ask_for_queues(&mut self, wanted: u16) -> Result<u16, Error> {
        let zero_based = u32::from(wanted.max(1) - 1);
        let value = zero_based << 16 | zero_based;
        let set = commands::set_features(feature::NUMBER_OF_QUEUES, value);
        let answer = self.run("Set Features (Number of Queues)", &set, &[])?;
        // Submission queues in the lower half, completion queues in the upper one.
        let [a, b, c, d, ..] = answer.result.to_le_bytes();
        let granted = u16::from_le_bytes([a, b]).min(u16::from_le_bytes([c, d]));
        Ok(granted.saturating_add(1))
    }

    /// Asks for the notices in `bits`. A controller that refuses sends what it likes.
    ///
    /// # Errors
    /// The connection's.
    pub(super) fn ask_for_notices(&mut self, bits: u32) -> Result<bool, Error> {
        let set = commands::set_features(feature::ASYNC_EVENTS, bits);
        let answer = self.ask("Set Features (Asynchronous Event Configuration)", &set, &[])?;
        Ok(answer.status.is_success())
    }

    /// Tells that retry delays are understood (Host Behavior Support, ACRE): only then are any named.
    ///
    /// # Errors
    /// The connection's.
    pub(super) fn accept_retry_delays(&mut self) -> Result<bool, Error> {
        let mut data = [0; 512];
        data[0] = 1;
        let length = u32::try_from(data.len()).expect("512");
        let set = commands::set_features(feature::HOST_BEHAVIOR, 0)
            .with(longshore_nvme::host::Transfer::ToController(length));
        let answer = self.ask("Set Features (Host Behavior Support)", &set, &data)?;
        Ok(answer.status.is_success())
    }

    /// Connects an I/O queue of `entries` entries; also says whether it has flow control.
    ///
    /// # Errors
    /// Says where it failed, and what to do next.
    pub(super) fn connect_queue(
        &mut self,
        queue_id: u16,
        entries: u16,
        in_capsule_data_bytes: u32,
    ) -> Result<(Link, bool), Error> {
        let mut connect = self.connect_command(queue_id, entries);
        match self.try_connect_queue(&connect, in_capsule_data_bytes)? {
            (mut link, answer) if answer.status.is_success() => {
                self.prove(&mut link, &answer)?;
                let has_flow_control = !connect.disable_flow_control;
                return Ok((link, has_flow_control));
            }
            (_, answer) if connect.disable_flow_control && refusal::is_attributes(&answer) => {}
            (_, answer) => {
                let _nothing = refusal::check(&self.portal, &self.subsystem, &answer)?;
            }
        }
        // Some controllers cannot do without flow control.
        connect.disable_flow_control = false;
        let (mut link, answer) = self.try_connect_queue(&connect, in_capsule_data_bytes)?;
        self.prove(&mut link, &answer)?;
        Ok((link, true))
    }

    /// Does what a controller asks for on an I/O queue that is connected.
    fn prove(&self, link: &mut Link, answer: &Answer) -> Result<(), Error> {
        let demand = refusal::check(&self.portal, &self.subsystem, answer)?;
        let channel = match self.made {
            Some(_) => QueueChannel::Secure,
            None => QueueChannel::Other,
        };
        let proof = Proof::new(&self.portal, self.parties(), &self.options);
        proof.give(link, demand, channel).map(drop)
    }

    fn parties(&self) -> Parties {
        Parties {
            host: self.identity.nqn.clone(),
            subsystem: self.subsystem.clone(),
        }
    }

    fn try_connect_queue(
        &self,
        connect: &Connect,
        in_capsule_data_bytes: u32,
    ) -> Result<(Link, Answer), Error> {
        let portal = &self.portal;
        let options = &self.options;
        let to = HostPort::from(self.address);
        let (stream, _) = crate::connect::connect(&to, options.timeouts.connect)?;
        let deadline = Deadline::after(options.timeouts.login);
        let config = ConnectionConfig {
            digests: digests(options),
            hpda: options.nvme.hpda.min(31),
            max_r2t: options.nvme.max_r2t.max(1),
            commands: connect.entries - 1,
            ..ConnectionConfig::default()
        };
        let step = "Connect of an I/O queue";
        let ends = Ends {
            portal,
            host: &self.identity.nqn,
            subsystem: &self.subsystem,
        };
        let channel = ends.channel(stream, options, self.made.as_ref(), deadline)?;
        let mut link = Link::open(channel, config, deadline)
            .map_err(|error| link_error(portal, "initialization of an I/O queue", error))?;
        require_digests(portal, options, link.connection().digests())?;
        let answer = link
            .run(&connect.command(), &connect.data(), deadline)
            .map_err(|error| link_error(portal, step, error))?;
        link.connection_mut()
            .set_in_capsule_data_bytes(in_capsule_data_bytes);
        Ok((link, answer))
    }

    /// Shuts the controller down as a host does that leaves, resets it, and waits a moment for both. Whether it has
    /// confirmed the end: by the standard it executes nothing any more then, of any of its queues. (Linux nvmet 6.1
    /// confirms at once, whatever its backends are doing.)
    pub fn shut_down(mut self) -> bool {
        const NORMAL: u64 = 1 << 14;
        const PATIENCE: Duration = Duration::from_secs(1);
        self.options.timeouts.login = self.options.timeouts.login.min(PATIENCE);
        let until = Instant::now() + PATIENCE;
        let enabled = self.capabilities.configuration();
        let is_shut_down = match self.set_property(Property::CC, enabled | NORMAL) {
            Ok(()) => self.comes_to(until, ControllerStatus::is_shut_down),
            // Refused; a reset may not be.
            Err(Error::Command { .. }) => false,
            Err(_) => return false,
        };
        // A reset ends what a shutdown leaves. Some controllers answer no more after it.
        let is_reset = self.set_property(Property::CC, enabled & !1).is_ok()
            && self.comes_to(until, |status| !status.is_ready());
        is_shut_down || is_reset
    }

    fn comes_to(&mut self, until: Instant, is_there: impl Fn(ControllerStatus) -> bool) -> bool {
        while let Ok(status) = self.status() {
            if is_there(status) {
                return true;
            }
            if Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }
}

/// What the controller settled on must have the digests that are required.
fn require_digests(portal: &HostPort, options: &Options, settled: Digests) -> Result<(), Error> {
    use crate::options::DigestWish::Require;
    let missing = match settled {
        Digests { header: false, .. } if options.header_digest == Require => "header digests",
        Digests { data: false, .. } if options.data_digest == Require => "data digests",
        _ => return Ok(()),
    };
    Err(Error::NotGranted {
        portal: portal.clone(),
        what: missing.to_owned(),
        advice: "enable them at the server, or do not require them",
    })
}

/// Whether a namespace is not there, by the status of Identify Namespace.
pub(super) fn is_no_namespace(error: &Error) -> bool {
    let Error::Command {
        failure: Failure::Nvme { status, .. },
        ..
    } = error
    else {
        return false;
    };
    status.code() == Status::INVALID_NAMESPACE_OR_FORMAT
}
