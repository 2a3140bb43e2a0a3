//! The hand-written sections of manual pages and `--help`, for each verb.

pub(super) type Rows = &'static [(&'static str, &'static str)];

/// The sections of a page. Words in backquotes are bold.
pub(super) struct Page {
    /// Paragraphs of the description.
    pub notes: &'static [&'static str],
    pub signals: Rows,
    pub exit_status: Rows,
    pub environment: Rows,
    pub files: Rows,
    /// A purpose and the command for it.
    pub examples: Rows,
    /// Name and section of each related page.
    pub see_also: Rows,
}

/// The pages of the command and its verbs, by name.
pub(super) const PAGES: &[(&str, &Page)] = &[
    ("longshore", &LONGSHORE),
    ("serve", &SERVE),
    ("discover", &DISCOVER),
    ("info", &INFO),
    ("copy", &COPY),
    ("bench", &BENCH),
    ("probe", &PROBE),
    ("explain", &EXPLAIN),
    ("advise", &ADVISE),
    ("predict", &PREDICT),
    ("status", &STATUS),
    ("top", &TOP),
    ("dashboard", &DASHBOARD),
    ("volume", &VOLUME),
    ("pool", &POOL),
    ("target", &TARGET),
    ("setting", &SETTING),
    ("session", &SESSION),
    ("plan", &PLAN),
    ("apply", &APPLY),
    ("config", &CONFIG),
    ("events", &EVENTS),
    ("token", &TOKEN),
    ("key", &KEY),
    ("import", &IMPORT),
    ("scst", &SCST),
    ("completions", &COMPLETIONS),
    ("manual", &MANUAL),
];

/// The sections of a verb, or of the command.
pub(super) fn page(name: &str) -> &'static Page {
    let found = PAGES.iter().find(|(of, _)| *of == name);
    found.expect("every verb has a page").1
}

const USAGE: (&str, &str) = (
    "2",
    "The command line is wrong: an unknown option, a malformed value, options that exclude each other. \
     Nothing was done.",
);

const CHAP_VARIABLES: Rows = &[
    (
        "LIBISCSI_CHAP_USERNAME, LIBISCSI_CHAP_PASSWORD",
        "User and secret for CHAP, unless the URL or an option gives them.",
    ),
    (
        "LIBISCSI_CHAP_TARGET_USERNAME, LIBISCSI_CHAP_TARGET_PASSWORD",
        "User and secret with which the target must authenticate (mutual CHAP).",
    ),
];

const HOST_FILES: Rows = &[(
    "/etc/nvme/hostnqn, /etc/nvme/hostid",
    "NQN and identifier of this host for NVMe/TCP, if these files exist.",
)];

const LONGSHORE: Page = Page {
    notes: &[
        "URLs name the volumes of other servers: `iscsi://[USER@]HOST[:PORT]/IQN/LUN` and \
         `nvme+tcp://HOST[:PORT]/NQN/NSID`.",
        "With `--output json` a verb prints one JSON document. Its `version` increases when a key is removed or \
         changes its meaning, not when a key is added.",
    ],
    signals: &[],
    exit_status: &[
        ("0", "Success, or nothing to do."),
        ("1", "Failure; standard error has the cause and advice."),
        USAGE,
        (
            "130, 143",
            "SIGINT or SIGTERM ended the command early (128 plus the number of the signal).",
        ),
    ],
    environment: &[("NO_COLOR", "The log of `serve` has no colours.")],
    files: &[
        (
            "/etc/longshore/longshore.toml",
            "Configuration of the service; see `longshore.toml`(5).",
        ),
        (
            "/var/lib/longshore",
            "State of the service; it survives a restart.",
        ),
    ],
    examples: &[(
        "Serve a file over both protocols, and copy a disk into it:",
        "longshore serve --volume disk0,backend=file,path=/srv/disk0.img,size=10G\nlongshore copy \
             /dev/sdb iscsi://127.0.0.1/iqn.2026-11.local.longshore:default/0",
    )],
    see_also: &[
        ("longshore-serve", "1"),
        ("longshore-discover", "1"),
        ("longshore-info", "1"),
        ("longshore-copy", "1"),
        ("longshore-bench", "1"),
        ("longshore-predict", "1"),
        ("longshore-status", "1"),
        ("longshore-top", "1"),
        ("longshore-volume", "1"),
        ("longshore-pool", "1"),
        ("longshore-target", "1"),
        ("longshore-session", "1"),
        ("longshore-plan", "1"),
        ("longshore-apply", "1"),
        ("longshore-config", "1"),
        ("longshore-events", "1"),
        ("longshore-token", "1"),
        ("longshore-completions", "1"),
        ("longshore-manual", "1"),
        ("longshore.toml", "5"),
        ("iscsiadm", "8"),
        ("nvme-connect", "1"),
    ],
};

const SERVE: Page = Page {
    notes: &[
        "Volumes are numbered from 0. Volume i is LUN i of target iqn.2026-11.local.longshore:default and \
         NSID i+1 of subsystem nqn.2026-11.local.longshore:default. [[target]] tables of the file replace this \
         target, [[subsystem]] tables this subsystem.",
    ],
    signals: &[
        (
            "SIGTERM, SIGINT",
            "Stop accepting commands, complete those accepted, flush, exit. A second signal exits at once.",
        ),
        (
            "SIGHUP",
            "Read the file again and take over volumes, targets, subsystems, accounts and the transmit policy; the \
             log names settings that need a restart. Read the sizes of all volumes.",
        ),
        ("SIGUSR1", "Write the statistics, or log a summary."),
    ],
    exit_status: &[
        (
            "0",
            "Stopped by a signal; all accepted commands are complete and flushed. With `--check`: the \
             configuration is in order.",
        ),
        (
            "1",
            "The server could not start, or failed. With `--check`: an error or a missing file. Standard error \
             names it.",
        ),
        USAGE,
        (
            "130, 143",
            "A second SIGINT or SIGTERM ended the server at once.",
        ),
        ("134", "A fault of the server itself (SIGABRT)."),
    ],
    environment: &[
        (
            "STATE_DIRECTORY",
            "State directory, set by `systemd`(1); `--state-dir` overrides it.",
        ),
        ("XDG_STATE_HOME", "Parent of the state directory of users."),
        (
            "LISTEN_FDS, NOTIFY_SOCKET",
            "Socket activation and readiness notification, set by `systemd`(1).",
        ),
        ("NO_COLOR", "The log has no colours."),
        (
            "nagle_threshold, nagle_margin",
            "Defaults of `--nagle-threshold` and `--nagle-margin`.",
        ),
        (
            "LIBISCSI_CHAP_USERNAME, LIBISCSI_CHAP_PASSWORD",
            "User and secret for volumes of other iSCSI servers whose URLs name no user.",
        ),
    ],
    files: &[
        (
            "/etc/longshore/longshore.toml",
            "Configuration that the unit `longshore.service` reads.",
        ),
        (
            "/var/lib/longshore",
            "State directory of root, with persistent reservations.",
        ),
        ("~/.local/state/longshore", "State directory of users."),
    ],
    examples: &[
        (
            "A new sparse file over both protocols, on loopback:",
            "longshore serve --volume disk0,backend=file,path=/srv/disk0.img,size=10G \\\n  --iscsi \
             127.0.0.1:3260 --nvme 127.0.0.1:4420",
        ),
        (
            "Check a configuration and report missing files:",
            "longshore serve --config /etc/longshore/longshore.toml --check",
        ),
    ],
    see_also: &[
        ("longshore", "1"),
        ("longshore.toml", "5"),
        ("longshore-discover", "1"),
        ("systemd.socket", "5"),
    ],
};

const DISCOVER: Page = Page {
    notes: &[],
    signals: &[],
    exit_status: &[
        (
            "0",
            "A server answered; its volumes are printed, if it offers any.",
        ),
        (
            "1",
            "No server answered; standard error has the result of each port.",
        ),
        USAGE,
    ],
    environment: CHAP_VARIABLES,
    files: HOST_FILES,
    examples: &[
        (
            "List all that a server offers:",
            "longshore discover 192.0.2.7",
        ),
        (
            "The same as JSON:",
            "longshore discover 192.0.2.7 --output json",
        ),
    ],
    see_also: &[
        ("longshore", "1"),
        ("longshore-info", "1"),
        ("longshore-copy", "1"),
    ],
};

const INFO: Page = Page {
    notes: &["This verb neither reads from the volume nor writes to it."],
    signals: &[],
    exit_status: &[
        ("0", "The description of the volume is printed."),
        (
            "1",
            "The volume cannot be reached or described; standard error has the cause.",
        ),
        USAGE,
    ],
    environment: CHAP_VARIABLES,
    files: HOST_FILES,
    examples: &[(
        "Show all properties of a volume:",
        "longshore info nvme+tcp://192.0.2.7/nqn.2026-11.com.example:disks/1",
    )],
    see_also: &[
        ("longshore", "1"),
        ("longshore-discover", "1"),
        ("longshore-bench", "1"),
    ],
};

const COPY: Page = Page {
    notes: &[
        "A destination smaller than the source is refused before the first write. In a larger destination, \
         the bytes behind the copy stay unchanged.",
        "With `--since`, the destination must hold what that snapshot holds; only `--verify` finds out if it does not. Until \
         the copy has ended, the destination is neither the old snapshot nor the new one.",
    ],
    signals: &[(
        "SIGINT, SIGTERM",
        "Complete the operations in progress and stop; `--resume` continues. A second signal ends the copy at once.",
    )],
    exit_status: &[
        (
            "0",
            "All data is copied and flushed; with `--verify`, both sides are identical.",
        ),
        (
            "1",
            "The copy failed, or both sides differ; standard error has the cause and the command to continue.",
        ),
        USAGE,
        (
            "130, 143",
            "SIGINT or SIGTERM stopped the copy; `--resume` continues it.",
        ),
    ],
    environment: CHAP_VARIABLES,
    files: &[
        (
            "DST.copy-journal",
            "Journal of a copy to a file: its progress.",
        ),
        (
            "~/.local/state/longshore",
            "Journals of all other destinations; /var/lib/longshore for root.",
        ),
    ],
    examples: &[
        (
            "Copy an image to a volume, and compare:",
            "longshore copy disk0.img iscsi://192.0.2.7/iqn.2026-11.com.example:disks/0 --verify",
        ),
        (
            "Copy a volume to a file:",
            "longshore copy nvme+tcp://192.0.2.7/nqn.2026-11.com.example:disks/1 backup.img",
        ),
        (
            "Bring a copy of a snapshot of a pool up to a newer snapshot, which is unit 2:",
            "longshore copy iscsi://192.0.2.7/iqn.2026-11.com.example:disks/2 backup.img --since tank/disk0@monday",
        ),
    ],
    see_also: &[
        ("longshore", "1"),
        ("longshore-discover", "1"),
        ("longshore-pool", "1"),
        ("qemu-img", "1"),
    ],
};

const BENCH: Page = Page {
    notes: &[
        "The depth is that of each session. Latency is the time from the submission of an operation until its \
         response is received; the clock is read once for each batch of responses.",
    ],
    signals: &[(
        "SIGINT, SIGTERM",
        "Stop and print the results so far. A second signal ends the measurement at once.",
    )],
    exit_status: &[
        ("0", "The measurement is complete."),
        (
            "1",
            "The measurement could not start, operations failed, data was wrong, or the connection was lost. The \
             results so far are printed.",
        ),
        USAGE,
        (
            "130, 143",
            "SIGINT or SIGTERM stopped the measurement; the results so far are printed.",
        ),
    ],
    environment: CHAP_VARIABLES,
    files: HOST_FILES,
    examples: &[
        (
            "Measure a range of depths, and draw it:",
            "longshore bench iscsi://192.0.2.7/iqn.2026-11.com.example:disks/0 --iodepth 1..256 --plot sweep.svg",
        ),
        (
            "Mix reads and writes:",
            "longshore bench nvme+tcp://192.0.2.7/nqn.2026-11.com.example:disks/1 --rw randrw --rwmixread 70",
        ),
        (
            "Check every written block:",
            "longshore bench URL --rw randwrite --bs 4k --verify --operations 100000",
        ),
        (
            "Compare two volumes, in turn:",
            "longshore bench URL1 --vs URL2 --rounds 5 --time 5s",
        ),
        (
            "Compare a volume over the network with the disk behind it:",
            "longshore bench URL --vs /dev/vdb --direct --iodepth 1..32",
        ),
    ],
    see_also: &[("longshore", "1"), ("longshore-info", "1"), ("fio", "1")],
};

const PROBE: Page = Page {
    notes: &[
        "A probe reads the volume and sends pings. With `--write` it writes as well, in one region, and there what it \
         has read before.",
        "A model is fitted to the loads. Some are `kept back`: its error is that of their prediction.",
        "With `--server` a Longshore server tells its own processor time, stages and connections.",
    ],
    signals: &[(
        "SIGINT, SIGTERM",
        "Stop without a result. A second signal ends the probe at once.",
    )],
    exit_status: &[
        ("0", "The probe is complete."),
        (
            "1",
            "The volume cannot be reached or measured, operations failed, or a file cannot be written.",
        ),
        USAGE,
        ("130, 143", "SIGINT or SIGTERM stopped the probe."),
    ],
    environment: CHAP_VARIABLES,
    files: HOST_FILES,
    examples: &[
        (
            "Measure a server for a minute, and keep the result:",
            "longshore probe iscsi://192.0.2.7/iqn.2026-11.com.example:disks/0 --save disks.json",
        ),
        (
            "The same with writes, on a volume that nobody uses:",
            "longshore probe nvme+tcp://192.0.2.7/nqn.2026-11.com.example:disks/1 --write 0+16m",
        ),
        (
            "Measure the disk behind it in the same way:",
            "longshore probe /dev/vdb --direct",
        ),
    ],
    see_also: &[
        ("longshore", "1"),
        ("longshore-bench", "1"),
        ("longshore-predict", "1"),
    ],
};

const EXPLAIN: Page = Page {
    notes: &[
        "An operation passes eight elements: application, send, wire and receive of each side. In each it waits for \
         others, then for something that sleeps or holds it back, and is then worked on. Parts that were not measured \
         are marked in pictures and reports.",
        "With a volume, the pipelines are those of a model that is fitted to a probe, for reads (and writes with \
         `--write`), at depth 1 and at the knee. What was measured beyond them is named.",
        "Without a volume, a running server tells its stages and the round trips of its connections.",
    ],
    signals: &[(
        "SIGINT, SIGTERM",
        "Stop without a result. A second signal ends the probe at once.",
    )],
    exit_status: &[
        ("0", "The pipelines are printed."),
        (
            "1",
            "The volume or the server cannot be reached or measured, or a file cannot be written.",
        ),
        USAGE,
        ("130, 143", "SIGINT or SIGTERM stopped the probe."),
    ],
    environment: CHAP_VARIABLES,
    files: HOST_FILES,
    examples: &[
        (
            "Show where the time of a read goes, and keep the report:",
            "longshore explain iscsi://192.0.2.7/iqn.2026-11.com.example:disks/0 --report disks.html",
        ),
        (
            "The same from a probe that was saved, for large operations:",
            "longshore explain disks.json --bs 256k --plot disks.svg",
        ),
        (
            "Show what the clients of the server on this machine do now:",
            "longshore explain --interval 10s",
        ),
    ],
    see_also: &[
        ("longshore", "1"),
        ("longshore-probe", "1"),
        ("longshore-advise", "1"),
        ("longshore-top", "1"),
    ],
};

const ADVISE: Page = Page {
    notes: &[
        "Each change has the gain that a model predicts, which is fitted to a probe, and the interval of it. A change \
         is listed where its gain is certain, and larger than what measurement and model leave open.",
        "`--check BEFORE.json` takes the probe that was saved before a change, and compares the gain that was achieved \
         with the prediction.",
    ],
    signals: &[(
        "SIGINT, SIGTERM",
        "Stop without a result. A second signal ends the probe at once.",
    )],
    exit_status: &[
        ("0", "The advice is printed, or there is none to give."),
        (
            "1",
            "The volume cannot be reached or measured, or a file cannot be read or written.",
        ),
        USAGE,
        ("130, 143", "SIGINT or SIGTERM stopped the probe."),
    ],
    environment: CHAP_VARIABLES,
    files: HOST_FILES,
    examples: &[
        (
            "Ask what would make large writes faster, on a volume that nobody uses:",
            "longshore advise iscsi://192.0.2.7/iqn.2026-11.com.example:disks/0 --rw write --write 0+16m --save before.json",
        ),
        (
            "Measure again after a change:",
            "longshore advise iscsi://192.0.2.7/iqn.2026-11.com.example:disks/0 --rw write --write 0+16m --check before.json",
        ),
        (
            "Mail the result:",
            "longshore advise before.json --rw write --report advice.html",
        ),
    ],
    see_also: &[
        ("longshore", "1"),
        ("longshore-probe", "1"),
        ("longshore-explain", "1"),
        ("longshore-predict", "1"),
    ],
};

const PREDICT: Page = Page {
    notes: &[
        "Each prediction has an interval: nine tenths of the results when the parts vary within their \
         uncertainties. Between small and large depths the interval also covers the variation of times, which is \
         not among the parts.",
        "Formulas do not cover responses that wait (`transmit` = nagle or adaptive-nagle), so intervals are wide \
         there. `--simulate` covers them.",
    ],
    signals: &[],
    exit_status: &[
        ("0", "The prediction is printed."),
        (
            "1",
            "The file cannot be read or has errors, or the picture cannot be written; standard error has the place.",
        ),
        USAGE,
    ],
    environment: &[],
    files: &[],
    examples: &[
        (
            "Show the effect of more outstanding R2Ts on writes over a wireless network:",
            "longshore predict --preset guerri-wireless --what-if max-outstanding-r2t=16",
        ),
        (
            "Write a set-up of your own, beginning with a published one:",
            "longshore predict --preset guerri-wired-ssd --parts > my.toml",
        ),
        (
            "Draw throughput and latency by depth:",
            "longshore predict my.toml --rw read --bs 4k,64k --iodepth 1..256 --plot my.svg",
        ),
        (
            "Predict a server that was probed:",
            "longshore predict disks.json --bs 4k --iodepth 1..64 --what-if mtu=9000",
        ),
        (
            "Simulate another transmit policy:",
            "longshore predict --preset butterfield-2017 --bs 512 --simulate --what-if transmit=nodelay",
        ),
    ],
    see_also: &[
        ("longshore", "1"),
        ("longshore-bench", "1"),
        ("longshore-probe", "1"),
    ],
};

const SERVER_VARIABLES: Rows = &[
    (
        "LONGSHORE_SERVER",
        "The server: the path of its socket, or a URL, as for `--server`.",
    ),
    (
        "LONGSHORE_TOKEN",
        "Token for a server given by its URL, unless `--token-file` is given.",
    ),
    (
        "XDG_RUNTIME_DIR",
        "Directory of the socket of servers of this user.",
    ),
];

const SERVER_FILES: Rows = &[
    (
        "/run/longshore/longshore.sock",
        "Socket of a server of root or the service manager.",
    ),
    (
        "STATE_DIRECTORY/admin-token",
        "First token of a server with `--api`; its role is `admin`.",
    ),
];

const STATUS: Page = Page {
    notes: &[],
    signals: &[],
    exit_status: &[
        ("0", "The server answers and serves all enabled objects."),
        (
            "1",
            "It does not, or no server answers; the output has the cause.",
        ),
        USAGE,
    ],
    environment: SERVER_VARIABLES,
    files: SERVER_FILES,
    examples: &[
        ("Ask the server of this machine:", "longshore status"),
        (
            "Ask one over TCP:",
            "longshore status --server http://127.0.0.1:9260 --token-file admin-token",
        ),
    ],
    see_also: &[("longshore", "1"), ("longshore-serve", "1")],
};

const DONE: Rows = &[
    ("0", "Done, or nothing to do."),
    (
        "1",
        "The server refused it, or no server answers; standard error has the cause and advice.",
    ),
    USAGE,
    ("10", "With `--dry-run`: there are changes."),
];

const ANSWERED: Rows = &[
    ("0", "The server answered."),
    (
        "1",
        "The server refused it, or no server answers; standard error has the cause and advice.",
    ),
    USAGE,
];

const CHANGE_NOTES: &[&str] = &[
    "A change is atomic and survives a restart of the server. Change objects of the configuration file or the \
     command line there.",
];

const VOLUME: Page = Page {
    notes: CHANGE_NOTES,
    signals: &[],
    exit_status: DONE,
    environment: SERVER_VARIABLES,
    files: SERVER_FILES,
    examples: &[
        (
            "Create a volume, and offer it to initiators and hosts:",
            "longshore volume create db backend=file path=/srv/db.img size=10G\nlongshore target map \
             iqn.2026-11.com.example:disks db",
        ),
        ("Grow it:", "longshore volume resize db 20G"),
        (
            "Remove it after accepted commands have ended:",
            "longshore volume remove db --drain",
        ),
    ],
    see_also: &[
        ("longshore", "1"),
        ("longshore-target", "1"),
        ("longshore.toml", "5"),
    ],
};

const POOL: Page = Page {
    notes: &[
        "A pool is named by all its drives, with `+` between them and a `/` in each path; by the name of a [[pool]] table \
         of the file of `--config`; or by the name or UUID by which a running server knows it. Names of pools, volumes and \
         snapshots have 1 to 64 letters, digits, `.`, `_` and `-`.",
        "While a server has the pool open, the verbs go through its control API, except `check`, which needs the pool to be \
         closed. Otherwise they open the drives themselves. `create` always does.",
        "Volumes that are served are resized with `longshore volume resize`, since their size is part of the \
         configuration. `resize`, `delete` and `rollback` here take volumes that are not served. `set` takes both.",
        "`add` and `remove` change the drives of a pool that is served or not. Write the new list into the configuration \
         afterwards. `scrub`, `remove`, `attach` and `replace` show how far they are, and go on in the server when this program ends; `show` tells \
         what came of them, `stop` has them end.",
        "Without a mirror, losing a drive is losing the pool. `create --mirror` and `attach` make mirrors of two drives. When \
         one fails, the pool goes on with the other; `replace` fills another one in its place. A pool that is opened without \
         a drive that was sound before refuses that, until `offline` leaves the drive out.",
    ],
    signals: &[],
    exit_status: &[
        ("0", "Success. Of `check` and `scrub`: no damage was found."),
        (
            "1",
            "Failure: the pool cannot be read, or nothing was changed. Standard error says why. Of `scrub`, `remove`, `attach` \
             and `replace` also: it was stopped or failed; standard output says why.",
        ),
        USAGE,
        (
            "3",
            "`check` and `scrub`: there is damage; standard output says where. `attach` and `replace`: there is data that \
             cannot be read, and was not copied.",
        ),
    ],
    environment: SERVER_VARIABLES,
    files: SERVER_FILES,
    examples: &[
        (
            "Make a pool of a file, and serve a compressed volume in it:",
            "longshore pool create tank /srv/tank.img --size 100G\nlongshore serve --volume \
             disk0,backend=pool,pool=/srv/tank.img,size=10G,compression=lz4",
        ),
        (
            "Make a snapshot of two volumes at one moment while they are served:",
            "longshore pool snapshot create tank monday disk0 disk1",
        ),
        (
            "Compress what is written to a volume from now on in another way:",
            "longshore pool volume set tank disk0 --compression zstd",
        ),
        (
            "Make a volume of a snapshot:",
            "longshore pool snapshot clone tank disk0@monday trial",
        ),
        (
            "Replace a drive while its volumes are served:",
            "longshore pool add tank /dev/sdd\nlongshore pool remove tank /dev/sdb",
        ),
        (
            "Make a pool of two drives that hold the same, and put another drive in place of one that has failed:",
            "longshore pool create safe /dev/sdb /dev/sdc --mirror\nlongshore pool replace safe /dev/sdc /dev/sdd",
        ),
        (
            "Read all data of a pool that is served, at 100 MiB a second, and compare it with its checksums:",
            "longshore pool scrub tank --rate 100M",
        ),
        (
            "Check a pool that is closed:",
            "longshore pool check /srv/tank.img --data",
        ),
    ],
    see_also: &[
        ("longshore", "1"),
        ("longshore-volume", "1"),
        ("longshore.toml", "5"),
    ],
};

const SETTING: Page = Page {
    notes: &[
        "A change is atomic and survives a restart of the server. What the configuration file or the command line says is \
         changed there. A setting without keys has its defaults and is not listed.",
    ],
    signals: &[],
    exit_status: DONE,
    environment: SERVER_VARIABLES,
    files: SERVER_FILES,
    examples: &[
        (
            "Send responses by Adaptive Nagle, with a threshold of 32 requests:",
            "longshore setting set transmit transmit=adaptive-nagle nagle-threshold=32",
        ),
        (
            "Let initiators discover with an account alone:",
            "longshore setting set discovery 'accounts=[{\"user\": \"web1\", \"secret-file\": \"/etc/longshore/web1\"}]'",
        ),
    ],
    see_also: &[("longshore", "1"), ("longshore.toml", "5")],
};

const TARGET: Page = Page {
    notes: CHANGE_NOTES,
    signals: &[],
    exit_status: DONE,
    environment: SERVER_VARIABLES,
    files: SERVER_FILES,
    examples: &[
        (
            "Create a target for one initiator, with one volume:",
            "longshore target create iqn.2026-11.com.example:db 'luns=[{\"lun\": 0, \"volume\": \"db\"}]'\nlongshore \
             target allow iqn.2026-11.com.example:db iqn.1993-08.org.debian:01:web1",
        ),
        (
            "Map a volume as namespace 3:",
            "longshore target map nqn.2026-11.com.example:disks db --number 3",
        ),
    ],
    see_also: &[
        ("longshore", "1"),
        ("longshore-volume", "1"),
        ("longshore.toml", "5"),
    ],
};

const SESSION: Page = Page {
    notes: &[],
    signals: &[],
    exit_status: ANSWERED,
    environment: SERVER_VARIABLES,
    files: SERVER_FILES,
    examples: &[("List connected clients:", "longshore session list")],
    see_also: &[("longshore", "1"), ("longshore-top", "1")],
};

const TOP: Page = Page {
    notes: &[
        "Keys: `v` `s` `c` `g` `e` choose the page; `o` sorts, `/` filters, `a` hides idle rows, `p` pauses, Enter \
         shows details, `x` closes a session, `?` shows all keys, `q` quits.",
        "Rates use the clock of the server. The mean time is that of followed operations (`--sample` of \
         `longshore-serve`(1)). `–` stands for a missing number.",
    ],
    signals: &[],
    exit_status: ANSWERED,
    environment: SERVER_VARIABLES,
    files: SERVER_FILES,
    examples: &[
        ("Watch the server of this machine:", "longshore top"),
        (
            "Rates of five seconds for a program:",
            "longshore top --once --interval 5s --output json",
        ),
    ],
    see_also: &[("longshore", "1"), ("longshore-bench", "1"), ("top", "1")],
};

const PLAN: Page = Page {
    notes: &[
        "If FILE is the server's own configuration file, the server compares it with the running configuration. Any \
         other file has [[volume]], [[target]] and [[subsystem]] tables: all objects of the API.",
    ],
    signals: &[],
    exit_status: &[
        ("0", "There are no changes."),
        (
            "1",
            "The file has errors, or no server answers; standard error names all problems with their places.",
        ),
        USAGE,
        ("10", "There are changes; they are printed."),
    ],
    environment: SERVER_VARIABLES,
    files: SERVER_FILES,
    examples: &[(
        "Show the changes of an edited configuration, and apply them:",
        "longshore plan /etc/longshore/longshore.toml\nlongshore apply /etc/longshore/longshore.toml --revision 7",
    )],
    see_also: &[
        ("longshore", "1"),
        ("longshore-apply", "1"),
        ("longshore.toml", "5"),
    ],
};

const APPLY: Page = Page {
    notes: PLAN.notes,
    signals: &[],
    exit_status: DONE,
    environment: SERVER_VARIABLES,
    files: SERVER_FILES,
    examples: PLAN.examples,
    see_also: &[
        ("longshore", "1"),
        ("longshore-plan", "1"),
        ("longshore-config", "1"),
    ],
};

const CONFIG: Page = Page {
    notes: &[],
    signals: &[],
    exit_status: DONE,
    environment: SERVER_VARIABLES,
    files: SERVER_FILES,
    examples: &[
        (
            "Save the objects of the API as a file:",
            "longshore config export --owner api > objects.toml",
        ),
        (
            "Undo the last change:",
            "longshore config history\nlongshore config rollback 6",
        ),
    ],
    see_also: &[
        ("longshore", "1"),
        ("longshore-plan", "1"),
        ("longshore.toml", "5"),
    ],
};

const EVENTS: Page = Page {
    notes: &[
        "The server keeps the last 4,096 events. An event with the topic `gap` stands for lost older ones. With \
         `--follow --output json`, each line is one event.",
    ],
    signals: &[],
    exit_status: ANSWERED,
    environment: SERVER_VARIABLES,
    files: SERVER_FILES,
    examples: &[(
        "Follow changes and sessions:",
        "longshore events --follow --topics change,session",
    )],
    see_also: &[("longshore", "1"), ("longshore-top", "1")],
};

const SCST: Page = Page {
    notes: &[
        "`longshore serve --scst-tree DIRECTORY` mounts the trees. In the shell, /sys/kernel/scst_tgt and \
         /proc/scsi_tgt are those of the server, for this process and its children alone. Root needs no user namespace; \
         another user is root in one of its own.",
        "In the shell, /proc and /sys/kernel have these names beside the ones of the system: /proc lists no processes but \
         `self`. Nothing else of the system changes.",
        "Needs unshare(1) and mount(8) of util-linux.",
    ],
    signals: &[],
    exit_status: &[
        (
            "0",
            "The command succeeded. Any other status of the command is passed on.",
        ),
        ("1", "There is no tree, or no namespace can be made."),
        USAGE,
    ],
    environment: &[("SHELL", "What is run without a command.")],
    files: &[],
    examples: &[
        (
            "Carry out SCST's configuration on a running server",
            "longshore scst shell -- scstadmin -config /etc/scst.conf",
        ),
        (
            "Look at the trees of one of two servers",
            "longshore scst shell --tree /run/longshore/scst",
        ),
    ],
    see_also: &[("unshare", "1"), ("scstadmin", "1")],
};

const IMPORT: Page = Page {
    notes: &[
        "Each setting of the source is mapped, the same as the default, ignored or refused, and the report gives the \
         reason. A refused setting is one that hosts or data would miss. Then nothing is written, unless `--partial` is \
         given.",
        "CHAP secrets go into files of mode 0600 in a directory beside the new file. Disks keep their names and serial \
         numbers where the source tells them; the notes of the report say where it does not.",
        "`longshore plan` and `longshore apply` follow.",
    ],
    signals: &[],
    exit_status: &[
        ("0", "The configuration is written."),
        (
            "1",
            "A file cannot be read or written, or its grammar is wrong.",
        ),
        USAGE,
        (
            "3",
            "A setting is refused. Without `--partial`, nothing is written.",
        ),
    ],
    environment: &[],
    files: &[],
    examples: &[
        (
            "Move from LIO",
            "longshore import lio /etc/rtslib-fb-target/saveconfig.json --output longshore.toml",
        ),
        (
            "See what an import would do, as JSON",
            "longshore import auto /etc/scst.conf --report json --dry-run",
        ),
        (
            "Take over istgt with its accounts",
            "longshore import istgt /etc/istgt/istgt.conf --auth /etc/istgt/auth.conf",
        ),
    ],
    see_also: &[
        ("longshore.toml", "5"),
        ("longshore-plan", "1"),
        ("longshore-apply", "1"),
    ],
};

const DASHBOARD: Page = Page {
    notes: &[
        "The server needs an address of the API over TCP (`longshore serve --api`). Who opens the URL first is logged in; \
         afterwards it is worthless. The code is behind the `#`, which browsers do not send to servers or write to logs.",
        "Without JavaScript, enter the code in the page. Without an address, forward a port to the socket: `ssh -L \
         9260:/run/longshore/longshore.sock HOST`, then open http://localhost:9260 without a log-in.",
    ],
    signals: &[],
    exit_status: ANSWERED,
    environment: SERVER_VARIABLES,
    files: SERVER_FILES,
    examples: &[("Print the address of the dashboard:", "longshore dashboard")],
    see_also: &[
        ("longshore", "1"),
        ("longshore-serve", "1"),
        ("longshore-token", "1"),
    ],
};

const TOKEN: Page = Page {
    notes: &[
        "A socket needs no token. The roles are `metrics` (read /metrics), `read`, `operate` (close sessions, too) and \
         `admin`; each includes the roles before it.",
    ],
    signals: &[],
    exit_status: ANSWERED,
    environment: SERVER_VARIABLES,
    files: SERVER_FILES,
    examples: &[(
        "Make a token for Prometheus:",
        "longshore token create prometheus --role metrics > /etc/prometheus/longshore.token",
    )],
    see_also: &[("longshore", "1"), ("longshore-serve", "1")],
};

const KEY: Page = Page {
    notes: &[
        "`generate` makes a secret from random bytes of the kernel, as `nvme gen-dhchap-key` and `nvme gen-tls-key` do. \
         Without a hash, the secret is used as it is; with one, hosts and servers derive keys from it. It writes a file of \
         mode 0600 that does not exist yet, or standard output.",
        "`check` tells whether a file holds a whole secret, and its kind, hash and length. The fingerprint serves to \
         compare secrets on two machines without showing them.",
        "`derive` prints the identity under which a host offers a key for TLS to a subsystem: the one to look for in logs \
         and in `keyctl show %:.nvme`. `--derivation compat` is that of libnvme up to 1.15, in Debian 13 for example, \
         which differs from the standard. `--reveal` prints the key that TLS takes, too, for openssl s_client or gnutls-cli.",
        "`list` shows the secrets of hosts that a configuration file names, and whether the server would take them.",
        "This version of Longshore uses secrets of DH-HMAC-CHAP. Keys for TLS are for other programs.",
    ],
    signals: &[],
    exit_status: &[
        (
            "0",
            "The secret was made, or is whole; all that were listed are.",
        ),
        (
            "1",
            "It could not be read or written, or is malformed; standard error has the cause.",
        ),
        USAGE,
    ],
    environment: &[(
        "CREDENTIALS_DIRECTORY",
        "Credentials of the service manager, for `list`: a relative name means the credential.",
    )],
    files: &[],
    examples: &[
        (
            "Make the secret of a host, and compare it on both machines:",
            "longshore key generate /etc/longshore/web1.dhchap && longshore key check /etc/longshore/web1.dhchap",
        ),
        (
            "Show the secrets that a configuration uses:",
            "longshore key list /etc/longshore/longshore.toml",
        ),
    ],
    see_also: &[("longshore", "1"), ("longshore.toml", "5")],
};

const PRINTED: Rows = &[
    ("0", "The output is written."),
    (
        "1",
        "The output could not be written; standard error has the cause.",
    ),
    USAGE,
];

const COMPLETIONS: Page = Page {
    notes: &[
        "`make install` installs the scripts for bash, zsh and fish.",
        "The script asks the program, which asks a running server for names.",
    ],
    signals: &[],
    exit_status: PRINTED,
    environment: &[],
    files: &[
        (
            "/usr/local/share/bash-completion/completions/longshore",
            "For bash.",
        ),
        ("/usr/local/share/zsh/site-functions/_longshore", "For zsh."),
        (
            "/usr/local/share/fish/vendor_completions.d/longshore.fish",
            "For fish.",
        ),
    ],
    examples: &[(
        "Load the script into this shell only:",
        "longshore completions bash > longshore.bash && . ./longshore.bash",
    )],
    see_also: &[("longshore", "1"), ("bash", "1")],
};

const MANUAL: Page = Page {
    notes: &["`make install` installs all pages."],
    signals: &[],
    exit_status: PRINTED,
    environment: &[],
    files: &[
        (
            "/usr/local/share/man/man1/longshore-*.1",
            "Manual pages of the verbs.",
        ),
        (
            "/usr/local/share/man/man5/longshore.toml.5",
            "Manual page of the configuration file.",
        ),
    ],
    examples: &[
        (
            "Read a page without installing it:",
            "longshore manual serve | man -l -",
        ),
        (
            "Write all pages:",
            "longshore manual --directory /usr/local/share/man",
        ),
    ],
    see_also: &[("longshore", "1"), ("longshore.toml", "5"), ("man", "1")],
};
