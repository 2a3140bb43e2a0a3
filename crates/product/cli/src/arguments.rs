//! The command line as a table: parsing, help, completions and manual pages all come from it.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use clap_complete::env::Shells;
use longshore_daemon::config::Arguments;
use longshore_daemon::config::api::{ApiAddress, ApiSocket};
use longshore_daemon::config::copies::{ByReference, RegisteredBuffers};
use longshore_daemon::config::engine::CoreList;
use longshore_daemon::config::listener::ListenerConfig;
use longshore_daemon::config::log::{LogFilter, LogFormat};
use longshore_daemon::config::masked::Masked;
use longshore_daemon::config::nvme_listener::{DiscoveryArgument, NvmeListenerConfig};
use longshore_daemon::config::reactor::{
    BusyPoll, CpuBudget, Priority, ReactorSettings, Spin, Spread, parse_spin,
};
use longshore_daemon::config::transmit::{
    NagleCycles, NagleThreshold, SendUnit, TransmitKeys, TransmitPolicy,
};
use longshore_daemon::config::volume::VolumeArgument;
use longshore_daemon::config::words;
use longshore_reactor::EngineChoice;
use longshore_sandbox::Mode as Sandbox;

use crate::advise::AdviseArguments;
use crate::bench::BenchArguments;
use crate::config::ConfigArguments;
use crate::copy::CopyArguments;
use crate::dashboard::DashboardArguments;
use crate::discover::DiscoverArguments;
use crate::events::EventsArguments;
use crate::explain::ExplainArguments;
use crate::import::ImportArguments;
use crate::info::InfoArguments;
use crate::key::KeyArguments;
use crate::manual;
use crate::plan::{ApplyArguments, PlanArguments};
use crate::pool::PoolArguments;
use crate::predict::PredictArguments;
use crate::probe::ProbeArguments;
use crate::scst::ScstArguments;
use crate::session::SessionArguments;
use crate::setting::SettingArguments;
use crate::status::StatusArguments;
use crate::target::TargetArguments;
use crate::token::TokenArguments;
use crate::top::TopArguments;
use crate::volume::VolumeArguments;

/// Serve block volumes over iSCSI and NVMe/TCP from one ordinary process
#[derive(Debug, Parser)]
#[command(name = "longshore", version, max_term_width = 100, after_long_help = manual::help("longshore"))]
pub struct Longshore {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve volumes until SIGTERM or SIGINT
    ///
    /// When all listeners accept connections, the server prints one line to standard output: `ready` and the
    /// addresses in use. The log goes to standard error.
    #[command(after_help = manual::OTHER_OPTIONS, after_long_help = manual::help("serve"))]
    Serve(Box<Serve>),
    /// List what a server offers: iSCSI targets, NVMe/TCP subsystems, their volumes
    ///
    /// Prints each volume with the URL that the other verbs take. Lists only volumes that this initiator or
    /// host may use.
    #[command(after_long_help = manual::help("discover"))]
    Discover(Box<DiscoverArguments>),
    /// Show a remote volume: size, limits, identifiers, connection parameters, reservations
    #[command(after_long_help = manual::help("info"))]
    Info(Box<InfoArguments>),
    /// Copy a volume between files, block devices and remote volumes
    ///
    /// Holes and zeros are not sent. At SIGINT or SIGTERM, the copy completes the operations in progress and
    /// exits with status 130 or 143. --resume continues a stopped copy, also after a crash.
    #[command(after_long_help = manual::help("copy"))]
    Copy(Box<CopyArguments>),
    /// Measure a volume, a file or a block device: operations per second, latency, processor time of both ends
    ///
    /// The default workload reads. A workload that writes DESTROYS the data of the volume.
    #[command(after_long_help = manual::help("bench"))]
    Bench(Box<BenchArguments>),
    /// Measure what the time of an operation is made of: network, protocol, storage, processors
    ///
    /// Takes a volume of any iSCSI or NVMe/TCP server, a file, or a block device. Reads only, unless --write names a
    /// region.
    #[command(after_long_help = manual::help("probe"))]
    Probe(Box<ProbeArguments>),
    /// Show the life of an operation: where its time goes, from the client's application and back
    ///
    /// Probes a volume of any iSCSI or NVMe/TCP server, a file or a block device, or takes the document of a probe.
    /// Without a volume, shows what a running Longshore server knows of the operations of its clients.
    #[command(after_long_help = manual::help("explain"))]
    Explain(Box<ExplainArguments>),
    /// Rank changes by what they would gain: server, initiator, host, workload
    ///
    /// Probes a volume, or takes the document of a probe. Reads only, unless --write names a region.
    #[command(after_long_help = manual::help("advise"))]
    Advise(Box<AdviseArguments>),
    /// Predict throughput and latency of a set-up, the element that limits them, and the effect of changes
    ///
    /// A set-up is a TOML file, a preset, or the document of a probe. No server is contacted.
    #[command(after_long_help = manual::help("predict"))]
    Predict(Box<PredictArguments>),
    /// Show the health of a running server
    #[command(after_long_help = manual::help("status"))]
    Status(Box<StatusArguments>),
    /// Show activity and bottleneck of a running server: volumes, sessions, cores, stages, events
    #[command(after_long_help = manual::help("top"))]
    Top(Box<TopArguments>),
    /// Print a URL that logs a browser in to the dashboard of a running server
    ///
    /// The URL is valid for two minutes and once. The browser gets the role of the caller, for 12 hours.
    #[command(after_long_help = manual::help("dashboard"))]
    Dashboard(Box<DashboardArguments>),
    /// List, create, change and remove volumes of a running server
    #[command(after_long_help = manual::help("volume"))]
    Volume(Box<VolumeArguments>),
    /// Make, show and check pools of drives, their volumes and snapshots
    ///
    /// A pool is named by all its drives (/srv/a.img+/srv/b.img), by its name in the file of --config, or by the name by
    /// which a running server knows it. While a server has the pool open, the verbs go through the server.
    #[command(after_long_help = manual::help("pool"))]
    Pool(Box<PoolArguments>),
    /// List, create, change and remove targets and subsystems, their maps and access rules
    #[command(after_long_help = manual::help("target"))]
    Target(Box<TargetArguments>),
    /// List and change settings of a running server: accounts of discovery, and when responses are sent
    #[command(after_long_help = manual::help("setting"))]
    Setting(Box<SettingArguments>),
    /// List and close sessions of clients
    #[command(after_long_help = manual::help("session"))]
    Session(Box<SessionArguments>),
    /// Show the changes of a configuration file before they are applied
    #[command(after_long_help = manual::help("plan"))]
    Plan(Box<PlanArguments>),
    /// Apply a configuration file to a running server
    #[command(after_long_help = manual::help("apply"))]
    Apply(Box<ApplyArguments>),
    /// Export the configuration of a running server; show and restore earlier revisions
    #[command(after_long_help = manual::help("config"))]
    Config(Box<ConfigArguments>),
    /// Show events of a running server
    #[command(after_long_help = manual::help("events"))]
    Events(Box<EventsArguments>),
    /// List, create and remove tokens for the API over TCP
    #[command(after_long_help = manual::help("token"))]
    Token(Box<TokenArguments>),
    /// Make and check secrets of NVMe hosts: DH-HMAC-CHAP, and pre-shared keys for TLS
    ///
    /// In the formats of nvme-cli. A secret is never an argument: other users of the machine see those.
    #[command(after_long_help = manual::help("key"))]
    Key(Box<KeyArguments>),
    /// Write a configuration from that of another server: SCST, tgt, LIO, nvmet, SPDK or istgt
    ///
    /// Prints a report on every setting of the source. No volume is opened and no server is contacted.
    #[command(after_long_help = manual::help("import"))]
    Import(Box<ImportArguments>),
    /// Run SCST's tools on the trees of a running server
    #[command(after_long_help = manual::help("scst"))]
    Scst(Box<ScstArguments>),
    /// Print a completion script for a shell
    #[command(after_long_help = manual::help("completions"))]
    Completions {
        /// Shell that is to complete
        shell: Shell,
    },
    /// Print a manual page (roff), or write all pages
    #[command(after_long_help = manual::help("manual"))]
    Manual(ManualArguments),
}

#[derive(Debug, Args)]
pub struct ManualArguments {
    /// Name of the page
    #[arg(default_value = "longshore", value_parser = PossibleValuesParser::new(manual::names()))]
    pub page: String,

    /// Write all pages to man1 and man5 below this directory
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "page")]
    pub directory: Option<PathBuf>,
}

/// Options of `serve`. `--help` shows those that people use; the manual page and completions have them all.
#[derive(Debug, Args)]
pub struct Serve {
    // Brackets enclose optional parts; rustdoc takes them for links.
    #[allow(rustdoc::broken_intra_doc_links)]
    /// A volume to serve; repeatable
    ///
    /// Keys: backend=null|mem|file|block|pool|iscsi|nvme-tcp, path=PATH, size=SIZE (K, M, G, T, P are powers of 1024),
    /// block-size=512|4096, read-only, direct (O_DIRECT), serial=TEXT, uuid=UUID,
    /// inline-writes=auto|always|never. With a size, a file that does not exist is created, sparse.
    /// Double a comma inside a value.
    ///
    /// Keys of a volume of a pool (backend=pool): pool=DRIVE[+DRIVE]... or the name of a [[pool]] of the file,
    /// pool-volume=NAME[@SNAPSHOT], compression=none|lz4|zstd, quota=none|SIZE, reserve=none|full|SIZE.
    ///
    /// Keys of a volume of another server (backend=iscsi, nvme-tcp): url=iscsi://[USER@]HOST[:PORT]/IQN/LUN or
    /// url=nvme+tcp://HOST[:PORT]/NQN/NSID, secret-file=PATH (the password of USER), initiator-name=IQN,
    /// host-nqn=NQN, dhchap-secret-file=PATH and dhchap-ctrl-secret-file=PATH (DH-HMAC-CHAP), tls-key-file=PATH, queues=N (connections),
    /// depth=N (commands on each connection), give-up=TIME (time limit of operations while the server cannot be
    /// reached).
    #[arg(long = "volume", value_name = "NAME[,KEY=VALUE]...", value_parser = VolumeParser)]
    volumes: Vec<VolumeArgument>,

    /// Listen for iSCSI on this address; repeatable
    ///
    /// Without --iscsi and --nvme, the server listens for both protocols, on 127.0.0.1:3260 and 127.0.0.1:4420.
    /// Put IPv6 addresses in brackets. Port 0 picks a free port. `advertise` replaces the address in discovery,
    /// for NAT and port forwarding. `tag` is the portal group tag (1).
    #[arg(long, value_name = "ADDR:PORT[,advertise=ADDR:PORT][,tag=N]")]
    iscsi: Vec<ListenerConfig>,

    /// Listen for NVMe/TCP on this address; repeatable
    ///
    /// The default port is 4420. `advertise` replaces the IP address in discovery.
    #[arg(long, value_name = "ADDR:PORT[,advertise=ADDR:PORT]")]
    nvme: Vec<NvmeListenerConfig>,

    /// Listen for NVMe discovery only; repeatable; `none`: no such listener
    /// [default: port 8009 where --nvme has port 4420]
    ///
    /// The addresses of --nvme answer discovery as well.
    #[arg(long, value_name = "ADDR:PORT[,advertise=ADDR:PORT]|none")]
    nvme_discovery: Vec<DiscoveryArgument>,

    /// Serve targets and subsystems without access control on addresses other than loopback
    ///
    /// Every machine that reaches such an address can read and write their volumes. Without this option,
    /// the server refuses to start.
    #[arg(long)]
    allow_open: bool,

    /// Serve the control API and metrics over TCP, too [default without ADDR:PORT: 127.0.0.1:9260]
    ///
    /// Requests need a token; the first one is in the file admin-token of the state directory. Beyond loopback
    /// the API needs TLS (table api of the file).
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:9260")]
    api: Option<ApiAddress>,

    /// Unix socket of the control API, or `none`
    ///
    /// [default: $XDG_RUNTIME_DIR/longshore.sock, for root /run/longshore/longshore.sock]
    #[arg(
        long,
        value_name = "PATH|none",
        hide_short_help = true,
        hide_long_help = true
    )]
    socket: Option<ApiSocket>,

    /// Mount SCST's trees of files here, for scstadmin
    ///
    /// sys is /sys/kernel/scst_tgt, proc/scsi_tgt that of the procfs era. `longshore scst shell` puts them where the
    /// tools look.
    #[arg(
        long,
        value_name = "DIRECTORY",
        hide_short_help = true,
        hide_long_help = true
    )]
    scst_tree: Option<PathBuf>,

    /// Read volumes, targets, subsystems, listeners and limits from a TOML file
    ///
    /// Options of the command line override the file. Volumes add up: those of the file come first.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// I/O engine: how event loops wait for sockets and files [default: auto]
    ///
    /// `auto` uses io_uring where this process may use it, else epoll.
    #[arg(
        long,
        value_name = "auto|io_uring|epoll",
        value_parser = words::parse::<EngineChoice>,
        hide_short_help = true,
        hide_long_help = true
    )]
    engine: Option<EngineChoice>,

    /// Cores to run on, one event loop each, such as 0,2-3 [default: all allowed for this process]
    #[arg(long, value_name = "LIST")]
    cores: Option<CoreList>,

    /// Transmit policy: when responses leave [default: auto]
    ///
    /// `auto` sends all responses of a turn of the event loop at once. The other policies send each response
    /// separately; the kernel may combine them.
    #[arg(long, value_name = "auto|nodelay|nagle|adaptive-nagle",
          value_parser = words::parse::<TransmitPolicy>, hide_short_help = true, hide_long_help = true)]
    transmit: Option<TransmitPolicy>,

    /// adaptive-nagle: commands without a pause that make a connection busy [default: 96]
    #[arg(
        long,
        value_name = "COMMANDS|infinite",
        hide_short_help = true,
        hide_long_help = true
    )]
    nagle_threshold: Option<NagleThreshold>,

    /// adaptive-nagle: commands beyond the threshold that keep Nagle's algorithm on [default: 40]
    #[arg(
        long,
        value_name = "COMMANDS",
        hide_short_help = true,
        hide_long_help = true
    )]
    nagle_margin: Option<u32>,

    /// adaptive-nagle: threshold of a busy period that began with Nagle's algorithm on: threshold plus margin
    /// (paper), or the margin alone (corrected) [default: paper]
    #[arg(long, value_name = "paper|corrected", value_parser = words::parse::<NagleCycles>,
          hide_short_help = true, hide_long_help = true)]
    nagle_cycles: Option<NagleCycles>,

    /// Unit of a send, under all transmit policies but `auto`: a response, or all responses of a turn [default:
    /// response]
    #[arg(long, value_name = "response|turn", value_parser = words::parse::<SendUnit>,
          hide_short_help = true, hide_long_help = true)]
    send: Option<SendUnit>,

    /// Whether large reads are sent by reference from the page cache; auto: of read-only volumes [default: auto]
    #[arg(
        long,
        value_name = "auto|off|always",
        value_parser = words::parse::<ByReference>,
        hide_short_help = true,
        hide_long_help = true
    )]
    splice: Option<ByReference>,

    /// Whether memory is registered with io_uring for large reads and writes of direct volumes [default: auto]
    #[arg(
        long,
        value_name = "auto|off",
        value_parser = words::parse::<RegisteredBuffers>,
        hide_short_help = true,
        hide_long_help = true
    )]
    registered: Option<RegisteredBuffers>,

    /// Poll before sleeping: where trials show a gain (auto), never (off), or for a fixed time [default: auto]
    #[arg(long, value_name = "auto|off|MICROSECONDS", value_parser = parse_spin)]
    spin: Option<Spin>,

    /// Percentage of each core's time that polling may take [default: 100]
    #[arg(
        long,
        value_name = "PERCENT",
        hide_short_help = true,
        hide_long_help = true
    )]
    cpu_budget: Option<CpuBudget>,

    /// Whether connections migrate to other event loops when the load is uneven [default: true]
    #[arg(
        long,
        value_name = "true|false",
        hide_short_help = true,
        hide_long_help = true
    )]
    rebalance: Option<bool>,

    /// Offload: whether other cores make the large reads and writes of a connection that keeps its core busy
    /// [default: auto]
    #[arg(
        long,
        value_name = "auto|off|always",
        value_parser = words::parse::<Spread>,
        hide_short_help = true,
        hide_long_help = true
    )]
    spread: Option<Spread>,

    /// Time for which an empty receive polls the network card (SO_BUSY_POLL)
    #[arg(
        long,
        value_name = "MICROSECONDS",
        hide_short_help = true,
        hide_long_help = true
    )]
    busy_poll: Option<BusyPoll>,

    /// Polling with --busy-poll replaces the interrupts of the network card (SO_PREFER_BUSY_POLL)
    #[arg(long, hide_short_help = true, hide_long_help = true)]
    prefer_busy_poll: bool,

    /// Priority of outgoing packets, for queueing disciplines and network cards (SO_PRIORITY)
    #[arg(
        long,
        value_name = "NUMBER",
        hide_short_help = true,
        hide_long_help = true
    )]
    priority: Option<Priority>,

    /// Format of the log [default: text]
    #[arg(long, value_name = "text|json")]
    log_format: Option<LogFormat>,

    /// Level of the log, or a list by module such as warn,longshore_iscsi=debug [default: info]
    #[arg(long, value_name = "FILTER")]
    log_level: Option<LogFilter>,

    /// Write statistics to this file (JSON) at SIGUSR1 and at the end
    ///
    /// Without it, SIGUSR1 logs a summary.
    #[arg(long, value_name = "FILE")]
    statistics: Option<PathBuf>,

    /// Follow one operation in N through its stages, for the statistics; 0: none [default: 256]
    #[arg(long, value_name = "N", hide_short_help = true, hide_long_help = true)]
    sample: Option<u32>,

    /// Directory for state that survives a restart, such as persistent reservations
    ///
    /// [default: $STATE_DIRECTORY, /var/lib/longshore for root, else
    /// $XDG_STATE_HOME/longshore or ~/.local/state/longshore]
    #[arg(long, value_name = "DIRECTORY")]
    state_dir: Option<PathBuf>,

    /// What the server gives up after its start, so that what takes it over finds little to use [default: auto]
    ///
    /// auto: what the kernel offers. strict: all of it, or the server does not start.
    #[arg(long, value_name = "auto|off|strict", value_parser = words::parse::<Sandbox>, hide_short_help = true, hide_long_help = true)]
    sandbox: Option<Sandbox>,

    /// File or folder of volumes that may be added while the server runs; repeatable
    #[arg(
        long,
        value_name = "PATH",
        hide_short_help = true,
        hide_long_help = true
    )]
    sandbox_path: Vec<PathBuf>,

    /// Port of servers whose volumes may be added while the server runs; repeatable
    ///
    /// With --sandbox strict also a port of listeners that may be added.
    #[arg(
        long,
        value_name = "PORT",
        hide_short_help = true,
        hide_long_help = true
    )]
    sandbox_port: Vec<u16>,

    /// Print commands to connect clients, before the `ready` line
    #[arg(long)]
    pub print_connect: bool,

    /// Check the configuration and exit: report all mistakes and missing files
    ///
    /// The check looks for backing files, devices, secret files and directories. It does not listen, connect,
    /// create files or open them for writing.
    #[arg(long)]
    pub check: bool,
}

/// Reads `--volume`. Like the usual parser, but its message does not repeat the passwords of URLs.
#[derive(Clone)]
struct VolumeParser;

impl TypedValueParser for VolumeParser {
    type Value = VolumeArgument;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<VolumeArgument, clap::Error> {
        let text = value.to_string_lossy();
        let parsed = match value.to_str() {
            Some(text) => text.parse().map_err(|error| format!("{error}")),
            None => Err("it is not UTF-8".to_owned()),
        };
        parsed.map_err(|problem| {
            let shown = Masked::new(&text).text;
            let text = format!("invalid value '{shown}' for '--volume': {problem}\n");
            clap::Error::raw(ErrorKind::ValueValidation, text).with_cmd(command)
        })
    }
}

impl Serve {
    /// What the configuration is put together from.
    pub fn into_arguments(self) -> Arguments {
        Arguments {
            volumes: self.volumes,
            iscsi: self.iscsi,
            nvme: self.nvme,
            nvme_discovery: self.nvme_discovery,
            api: self.api,
            socket: self.socket,
            scst_tree: self.scst_tree,
            engine: self.engine,
            cores: self.cores,
            transmit: TransmitKeys {
                policy: self.transmit,
                nagle_threshold: self.nagle_threshold,
                nagle_margin: self.nagle_margin,
                nagle_cycles: self.nagle_cycles,
                send: self.send,
            },
            splice: self.splice,
            registered: self.registered,
            reactor: ReactorSettings {
                spin: self.spin,
                cpu_budget: self.cpu_budget,
                rebalance: self.rebalance,
                spread: self.spread,
                busy_poll: self.busy_poll,
                prefer_busy_poll: self.prefer_busy_poll.then_some(true),
                priority: self.priority,
            },
            log_format: self.log_format,
            log_filter: self.log_level,
            statistics: self.statistics,
            allow_open: self.allow_open,
            sample: self.sample,
            state_dir: self.state_dir,
            sandbox: self.sandbox,
            sandbox_paths: self.sandbox_path,
            sandbox_ports: self.sandbox_port,
            is_managed: false,
        }
    }
}

/// The variable by which the script of a shell asks for candidates.
pub const COMPLETIONS: &str = "LONGSHORE_COMPLETE";

/// What bash needs beside the script: names have colons, at which it splits words.
const BASH_COLONS: &str = r#"
_longshore() {
    if ! declare -F _get_comp_words_by_ref __ltrim_colon_completions > /dev/null; then
        _clap_complete_longshore "$@"
        return
    fi
    local cur words cword
    _get_comp_words_by_ref -n : cur words cword
    local COMP_WORDS=("${words[@]}") COMP_CWORD=$cword
    _clap_complete_longshore "$1" "$cur" "$3"
    __ltrim_colon_completions "$cur"
}
complete -o nospace -o bashdefault -F _longshore longshore
"#;

/// The script with which a shell completes the command line: it asks this program, which may ask a server.
pub fn completions(shell: Shell) -> Vec<u8> {
    let shells = Shells::builtins();
    let mut script = Vec::new();
    let name = "longshore";
    if let Some(completer) = shells.completer(&shell.to_string()) {
        // Writing into memory does not fail.
        let _ = completer.write_registration(COMPLETIONS, name, name, name, &mut script);
    }
    if shell == Shell::Bash {
        script.extend_from_slice(BASH_COLONS.as_bytes());
    }
    script
}

/// The command line as shells complete it.
///
/// Options that take one of some words are completed with these: they stand in the name of the value.
pub fn completing() -> clap::Command {
    let complete = |argument: Arg| {
        let names = argument.get_value_names().unwrap_or_default();
        let words: Vec<String> = names.first().map_or_else(Vec::new, |name| {
            name.split('|').map(str::to_owned).collect()
        });
        let is_word = |word: &String| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
            word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(plain)
        };
        if words.len() > 1 && words.iter().any(is_word) {
            let words = words.into_iter().filter(|word| is_word(word));
            return argument.value_parser(PossibleValuesParser::new(words));
        }
        argument
    };
    let verbs: Vec<String> = Longshore::command()
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .collect();
    verbs.iter().fold(Longshore::command(), |command, verb| {
        command.mut_subcommand(verb, |verb| verb.mut_args(complete))
    })
}

#[cfg(test)]
mod tests {
    use clap_complete::engine;

    use super::*;

    fn serve(arguments: &[&str]) -> Result<Arguments, clap::Error> {
        let words = ["longshore", "serve"].iter().chain(arguments);
        match Longshore::try_parse_from(words)?.command {
            Command::Serve(serve) => Ok(serve.into_arguments()),
            _ => panic!("serve was asked for"),
        }
    }

    #[test]
    fn the_table_is_consistent() {
        Longshore::command().debug_assert();
    }

    #[test]
    fn the_quick_start_is_understood() {
        let arguments = serve(&[
            "--volume",
            "disk0,backend=file,path=/srv/disk0.img,size=10G",
            "--volume",
            "fast,backend=null,size=1T,block-size=4096",
            "--iscsi",
            "127.0.0.1:3260",
            "--nvme",
            "127.0.0.1:4420",
            "--nvme-discovery",
            "none",
            "--engine",
            "epoll",
            "--cores",
            "0,2-3",
            "--transmit",
            "nodelay",
            "--log-format",
            "json",
            "--log-level",
            "debug",
        ])
        .unwrap();
        assert_eq!(arguments.volumes.len(), 2);
        assert_eq!(arguments.iscsi.len(), 1);
        assert_eq!(arguments.nvme[0].to_string(), "127.0.0.1:4420");
        assert_eq!(arguments.nvme_discovery, [DiscoveryArgument::Nowhere]);
        assert_eq!(arguments.engine, Some(EngineChoice::Epoll));
        assert_eq!(arguments.cores, Some(CoreList(vec![0, 2, 3])));
        assert_eq!(arguments.transmit.policy, Some(TransmitPolicy::NoDelay));
        assert_eq!(arguments.log_format, Some(LogFormat::Json));
    }

    #[test]
    fn a_bad_value_is_a_usage_error_that_points_at_it() {
        let error = serve(&["--volume", "d,backend=fil"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(
            text.contains("`fil` is not a backend; did you mean `file`?"),
            "{text}"
        );
        assert!(
            text.contains("  d,backend=fil\n            ^^^\n"),
            "{text}"
        );
        let error = serve(&["--volume", "d,backend=iscsi,url=iscsi://u%pass@h/x/0"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(!text.contains("pass") && text.contains("u%***@h"), "{text}");
        for words in [
            ["--engine", "kqueue"],
            ["--cores", "x"],
            ["--transmit", "fast"],
        ] {
            assert_eq!(serve(&words).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }

    #[test]
    fn the_help_of_serve_shows_the_usual_options_and_where_the_others_are() {
        let shown = |help: &str| {
            let options = help.split("Exit status:").next().unwrap_or_default();
            let lines = options.lines().map(str::trim_start);
            lines.filter(|line| line.starts_with("--")).count()
        };
        for flag in ["-h", "--help"] {
            let help = Longshore::try_parse_from(["longshore", "serve", flag]).unwrap_err();
            let help = help.to_string();
            assert_eq!(shown(&help), 15, "{flag}:\n{help}");
            assert!(
                help.trim_end().ends_with(manual::OTHER_OPTIONS),
                "{flag}:\n{help}"
            );
        }
        assert_eq!(manual::OTHER_OPTIONS.lines().count(), 1);
        // Those that are not shown are understood.
        let hidden = serve(&["--engine", "epoll", "--socket", "none", "--sample", "0"]).unwrap();
        assert_eq!(hidden.engine, Some(EngineChoice::Epoll));
        assert_eq!(hidden.sample, Some(0));
        assert_eq!(hidden.socket, Some(ApiSocket::Nowhere));
    }

    /// What a shell offers for the last of these words.
    fn offered(words: &[&str]) -> Vec<String> {
        let words: Vec<_> = ["longshore"].iter().chain(words).map(Into::into).collect();
        let last = words.len() - 1;
        let found = engine::complete(&mut completing(), words, last, None).unwrap();
        let texts = found
            .iter()
            .map(|it| it.get_value().to_string_lossy().into_owned());
        texts.collect()
    }

    #[test]
    fn completions_know_verbs_options_and_words() {
        for (words, expected) in [
            (&["be"][..], "bench"),
            (&["bench", "--plot-v"], "--plot-view"),
            (&["serve", "--engine", ""], "io_uring"),
            (&["serve", "--transmit", "ad"], "adaptive-nagle"),
            (&["serve", "--cpu"], "--cpu-budget"),
            (&["target", "al"], "allow"),
        ] {
            let offered = offered(words);
            assert!(
                offered.iter().any(|it| it == expected),
                "{words:?}: {offered:?}"
            );
        }
    }

    #[test]
    fn scripts_ask_the_program_of_the_path() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(completions(shell)).unwrap();
            assert!(script.contains(COMPLETIONS), "{shell}: {script}");
            assert!(!script.contains(env!("CARGO_MANIFEST_DIR")), "{shell}");
        }
    }
}
