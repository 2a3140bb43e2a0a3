//! A drawn set-up, built: namespaces, the link between them, a server with its volume, and probes of it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use longshore_model::probe::Probe;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};

use super::super::Plan;
use super::super::network::{Namespaces, inside, run};
use super::draw::{Link, SetUp};
use super::precedence;
use super::share::Share;
use super::way::{Delay, Way};
use crate::bench::load::{Report, bench_below, words};
use crate::bench::point::Protocol;
use crate::bench::server::{CLIENT_CORE, SERVER_CORE, pinned, url};
use crate::command::run_checked;

const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// Ports of the first server; further ones follow.
const ISCSI_PORT: u16 = 3260;
const NVME_PORT: u16 = 4420;

/// Bytes of the volume, and of the region that is written.
const VOLUME: &str = "64M";
const REGION: &str = "0+16m";

/// Beyond the time that a probe is asked to take.
const PROBE_LIMIT: Duration = Duration::from_secs(180);

/// Namespaces with a link between them.
pub struct Net {
    // Devices of the way live in the namespaces; it ends first.
    _way: Option<Way>,
    namespaces: Namespaces,
}

impl Net {
    pub fn new(link: &Link) -> Result<Self> {
        let id = std::process::id();
        let (server, client) = (format!("netlab{id}-s"), format!("netlab{id}-c"));
        let mut namespaces = Namespaces::default();
        namespaces.add(server.clone())?;
        namespaces.add(client.clone())?;
        run(&format!("ip -n {server} link set lo up"))?;
        let mtu = link.mtu;
        let (way, devices) = if link.delay_us == 0 {
            run(&format!(
                "ip -n {server} link add veth0 mtu {mtu} type veth peer name veth0 mtu {mtu} netns {client}"
            ))?;
            (None, ["veth0".to_owned(), "veth0".to_owned()])
        } else {
            // Names of devices have 15 bytes at most.
            let names = [format!("lab{id}s"), format!("lab{id}c")];
            let delay = Delay {
                one_way: Duration::from_micros(link.delay_us.into()),
                jitter: Duration::from_micros(link.jitter_us.into()),
            };
            let way = Way::new([&names[0], &names[1]], delay)?;
            for (name, namespace) in names.iter().zip([&server, &client]) {
                run(&format!("ip link set {name} netns {namespace}"))?;
                run(&format!("ip -n {namespace} link set {name} mtu {mtu}"))?;
            }
            (Some(way), names)
        };
        let ends = [(&server, SERVER), (&client, CLIENT)];
        for ((namespace, address), device) in ends.into_iter().zip(&devices) {
            run(&format!(
                "ip -n {namespace} address add {address}/30 dev {device}"
            ))?;
            run(&format!("ip -n {namespace} link set {device} up"))?;
            run(&format!(
                "tc -n {namespace} qdisc add dev {device} root tbf rate {}mbit burst {} latency {}ms",
                link.rate, link.burst, link.queue_ms
            ))?;
        }
        Ok(Self {
            _way: way,
            namespaces,
        })
    }

    /// Loopback of a namespace of its own.
    pub fn loopback() -> Result<Self> {
        let server = format!("netlab{}-s", std::process::id());
        let mut namespaces = Namespaces::default();
        namespaces.add(server.clone())?;
        run(&format!("ip -n {server} link set lo up"))?;
        Ok(Self {
            _way: None,
            namespaces,
        })
    }

    fn address(&self) -> IpAddr {
        if self.has_link() {
            SERVER.into()
        } else {
            Ipv4Addr::LOCALHOST.into()
        }
    }

    /// A link limits, so that no processor is busy all the time.
    fn has_link(&self) -> bool {
        self.namespaces.names().len() > 1
    }

    fn below(&self, namespace: &str, core: &str, precedes: bool) -> Vec<String> {
        let mut below = inside(namespace);
        if precedes && self.has_link() {
            below.extend(precedence::words());
        }
        below.extend(pinned(core));
        below
    }

    /// What runs a program on the client's side.
    fn on_client(&self) -> Vec<String> {
        let names = self.namespaces.names();
        self.below(names.last().expect("there is one"), CLIENT_CORE, true)
    }

    /// What runs a server with a share of its processor: with all of it, it precedes other programs.
    fn on_server(&self, percent: u32) -> Vec<String> {
        self.below(&self.namespaces.names()[0], SERVER_CORE, percent == 100)
    }
}

/// A server of a set-up.
pub struct Served<'a> {
    net: &'a Net,
    pub server: Server,
    protocol: Protocol,
    scratch: Scratch,
    _share: Option<Share>,
}

impl<'a> Served<'a> {
    /// The server of a set-up; `number` tells servers of one network apart. `sample`: one operation in so many is followed.
    pub fn start(
        plan: &Plan,
        net: &'a Net,
        set_up: &SetUp,
        number: u16,
        sample: u32,
    ) -> Result<Self> {
        let scratch = Scratch::new("netlab");
        let mut volume = format!("a,backend=mem,size={VOLUME}");
        if set_up.device.delay_us > 0 {
            volume += &format!(",delay={}us", set_up.device.delay_us);
        }
        if set_up.device.rate > 0 {
            volume += &format!(",rate={}M", set_up.device.rate);
        }
        // No other machine reaches the namespace.
        if volume.contains("delay") || volume.contains("rate") {
            volume += ",slow-anywhere";
        }
        let rules = &set_up.rules;
        let config = format!(
            "[listen]\nallow-open = true\n[engine]\nsample = {sample}\n[limits]\nin-capsule-data = {}\n\
             [iscsi]\nmax-outstanding-r2t = {}\nfirst-burst-length = {}\nmax-burst-length = {}\n",
            rules.in_capsule, rules.outstanding, rules.first_burst, rules.max_burst
        );
        let below = net.on_server(set_up.share);
        let below: Vec<&str> = below.iter().map(String::as_str).collect();
        let address = net.address();
        let server = ServerBuilder::with_program(plan.program.clone())
            .below(&below)
            .config(&config)
            .volume(&volume)
            .argument("--state-dir")
            .argument(&scratch.join("state").display().to_string())
            .argument("--socket")
            .argument(&scratch.join("socket").display().to_string())
            .iscsi_at(SocketAddr::new(address, ISCSI_PORT + number), "")
            .nvme_at(SocketAddr::new(address, NVME_PORT + number), "")
            .start()
            .context("start longshore")?;
        let share = match set_up.share {
            100 => None,
            percent => Some(Share::of(server.pid(), percent)?),
        };
        Ok(Self {
            net,
            server,
            protocol: set_up.protocol,
            scratch,
            _share: share,
        })
    }

    pub fn url(&self) -> String {
        url(&self.server, self.protocol)
    }

    pub fn socket(&self) -> PathBuf {
        self.scratch.join("socket")
    }

    /// Probes the volume for so many seconds. `statistics`: with those of the server.
    pub fn probe(
        &self,
        plan: &Plan,
        seconds: f64,
        writes: bool,
        statistics: bool,
    ) -> Result<Probe> {
        let document = self.scratch.join("probe.json");
        let mut words = self.net.on_client();
        words.extend([
            plan.program.display().to_string(),
            "probe".to_owned(),
            self.url(),
        ]);
        words.extend(["--time".to_owned(), format!("{seconds}s")]);
        words.extend(["--save".to_owned(), document.display().to_string()]);
        if writes {
            words.extend(["--write", REGION].map(str::to_owned));
        }
        if statistics {
            words.extend(["--server".to_owned(), self.socket().display().to_string()]);
        }
        let limit = Duration::from_secs_f64(seconds) + PROBE_LIMIT;
        run_checked(Command::new(&words[0]).args(&words[1..]), limit)?;
        let bytes = std::fs::read(&document).context("read the probe")?;
        Probe::parse(&bytes).context("the probe's document")
    }

    /// A load from the client's side.
    pub fn bench(&self, plan: &Plan, options: &str) -> Result<Report> {
        bench_below(
            &self.net.on_client(),
            &plan.program,
            &self.url(),
            &words(options),
        )
    }
}
