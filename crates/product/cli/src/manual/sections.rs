//! The hand-written sections of manual pages and `--help`, for each verb.

/// Names and meanings.
pub(super) type Rows = &'static [(&'static str, &'static str)];

/// The sections of a page. Words in backquotes are bold.
pub(super) struct Page {
    /// Paragraphs of the description.
    pub notes: &'static [&'static str],
    pub signals: Rows,
    pub exit_status: Rows,
    pub environment: Rows,
    pub files: Rows,
    /// Purposes and commands.
    pub examples: Rows,
    /// Names and sections.
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
    "The command line cannot be read: an unknown option, a malformed value, options that exclude each other. \
     Nothing was done.",
);

const CHAP_VARIABLES: Rows = &[
    (
        "LIBISCSI_CHAP_USERNAME, LIBISCSI_CHAP_PASSWORD",
        "User and secret for CHAP, where neither the URL nor an option names them.",
    ),
    (
        "LIBISCSI_CHAP_TARGET_USERNAME, LIBISCSI_CHAP_TARGET_PASSWORD",
        "User and secret that the target has to prove (mutual CHAP).",
    ),
];

const HOST_FILES: Rows = &[(
    "/etc/nvme/hostnqn, /etc/nvme/hostid",
    "The names of this host over NVMe/TCP, where there are such files.",
)];

const LONGSHORE: Page = Page {
    notes: &[
        "Volumes of other servers are named by URLs: `iscsi://[USER@]HOST[:PORT]/IQN/LUN` and \
         `nvme+tcp://HOST[:PORT]/NQN/NSID`.",
        "With `--output json` a verb prints one JSON document. Its `version` rises when a key goes away or \
         changes its meaning, not when one is added.",
    ],
    signals: &[],
    exit_status: &[
        ("0", "Done as asked, or there was nothing to do."),
        (
            "1",
            "It could not be done; standard error says why and what to do next.",
        ),
        USAGE,
        (
            "130, 143",
            "SIGINT or SIGTERM came before the work was done (128 and the number of the signal).",
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
            "State of the service that survives a restart.",
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
        ("longshore-completions", "1"),
        ("longshore-manual", "1"),
        ("longshore.toml", "5"),
        ("iscsiadm", "8"),
        ("nvme-connect", "1"),
    ],
};

const SERVE: Page = Page {
    notes: &[
        "Volume i, counted from 0, is LUN i of target iqn.2026-11.local.longshore:default, unless the file has \
         [[target]] tables, and NSID i+1 of subsystem nqn.2026-11.local.longshore:default, unless it has \
         [[subsystem]] tables.",
    ],
    signals: &[
        (
            "SIGTERM, SIGINT",
            "Stop accepting, finish what was accepted, flush, exit. A second one exits at once.",
        ),
        (
            "SIGHUP",
            "Read again when responses are sent ([engine] transmit, send and nagle-* of the file), and look for \
             volumes whose size has changed.",
        ),
        ("SIGUSR1", "Write the statistics, or log a summary."),
    ],
    exit_status: &[
        (
            "0",
            "Stopped by a signal, with everything that was accepted finished and flushed. With `--check`: the \
             configuration is in order.",
        ),
        (
            "1",
            "Could not start, or failed. With `--check`: something is wrong or missing. Standard error says what.",
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
            "The state directory, from `systemd`(1); `--state-dir` wins.",
        ),
        ("XDG_STATE_HOME", "Base of the state directory of users."),
        (
            "LISTEN_FDS, NOTIFY_SOCKET",
            "Socket activation and readiness, from `systemd`(1).",
        ),
        ("NO_COLOR", "The log has no colours."),
        (
            "nagle_threshold, nagle_margin",
            "Defaults of `--nagle-threshold` and `--nagle-margin`.",
        ),
        (
            "LIBISCSI_CHAP_USERNAME, LIBISCSI_CHAP_PASSWORD",
            "For volumes of other iSCSI servers whose URLs name no user.",
        ),
    ],
    files: &[
        (
            "/etc/longshore/longshore.toml",
            "Configuration of the unit `longshore.service`.",
        ),
        (
            "/var/lib/longshore",
            "State directory of root: persistent reservations.",
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
            "Say what is wrong with a configuration, and which files are missing:",
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
            "Something answered; what it offers is printed, also when that is nothing.",
        ),
        (
            "1",
            "Nothing answered; standard error says what each port did.",
        ),
        USAGE,
    ],
    environment: CHAP_VARIABLES,
    files: HOST_FILES,
    examples: &[
        ("All that a server offers:", "longshore discover 192.0.2.7"),
        (
            "The same for programs:",
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
    notes: &["Nothing is read from the volume or written to it."],
    signals: &[],
    exit_status: &[
        ("0", "The volume is there, and described."),
        (
            "1",
            "It cannot be reached or described; standard error says why.",
        ),
        USAGE,
    ],
    environment: CHAP_VARIABLES,
    files: HOST_FILES,
    examples: &[(
        "What there is to know of a volume:",
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
        "A destination that is smaller than the source is refused before anything is written. What a larger one \
         has behind the copy stays as it is.",
    ],
    signals: &[(
        "SIGINT, SIGTERM",
        "Stop when what is under way is done; `--resume` goes on from there. A second one ends at once.",
    )],
    exit_status: &[
        (
            "0",
            "Everything is copied and flushed; with `--verify`, both sides are the same.",
        ),
        (
            "1",
            "The copy failed, or both sides differ; standard error says why, and how to go on.",
        ),
        USAGE,
        (
            "130, 143",
            "SIGINT or SIGTERM stopped it; `--resume` goes on.",
        ),
    ],
    environment: CHAP_VARIABLES,
    files: &[
        (
            "DST.copy-journal",
            "How far the copy got, beside a destination that is a file.",
        ),
        (
            "~/.local/state/longshore",
            "Journals of all other destinations; /var/lib/longshore for root.",
        ),
    ],
    examples: &[
        (
            "An image to a volume, compared afterwards:",
            "longshore copy disk0.img iscsi://192.0.2.7/iqn.2026-11.com.example:disks/0 --verify",
        ),
        (
            "A volume to a file:",
            "longshore copy nvme+tcp://192.0.2.7/nqn.2026-11.com.example:disks/1 backup.img",
        ),
    ],
    see_also: &[
        ("longshore", "1"),
        ("longshore-discover", "1"),
        ("qemu-img", "1"),
    ],
};

const BENCH: Page = Page {
    notes: &[
        "The depth is that of each session. Latency runs from the submission of an operation to the moment its \
         answer was taken in; the clock is read once for each batch of answers.",
    ],
    signals: &[(
        "SIGINT, SIGTERM",
        "Stop and print what was measured until then. A second one ends at once.",
    )],
    exit_status: &[
        ("0", "Measured as asked."),
        (
            "1",
            "Nothing could be measured, operations failed, data was wrong, or the connection was lost. What was \
             measured until then is printed.",
        ),
        USAGE,
        (
            "130, 143",
            "SIGINT or SIGTERM stopped it; what was measured until then is printed.",
        ),
    ],
    environment: CHAP_VARIABLES,
    files: HOST_FILES,
    examples: &[
        (
            "A sweep and its picture:",
            "longshore bench iscsi://192.0.2.7/iqn.2026-11.com.example:disks/0 --iodepth 1..256 --plot sweep.svg",
        ),
        (
            "Reads and writes mixed:",
            "longshore bench nvme+tcp://192.0.2.7/nqn.2026-11.com.example:disks/1 --rw randrw --rwmixread 70",
        ),
        (
            "Check every block that is written:",
            "longshore bench URL --rw randwrite --bs 4k --verify --operations 100000",
        ),
        (
            "Two volumes by turns:",
            "longshore bench URL1 --vs URL2 --rounds 5 --time 5s",
        ),
        (
            "The network beside the disk behind it:",
            "longshore bench URL --vs /dev/vdb --direct --iodepth 1..32",
        ),
    ],
    see_also: &[("longshore", "1"), ("longshore-info", "1"), ("fio", "1")],
};

const PRINTED: Rows = &[
    ("0", "Printed."),
    ("1", "It could not be written; standard error says why."),
    USAGE,
];

const COMPLETIONS: Page = Page {
    notes: &["`make install` installs those of bash, zsh and fish."],
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
        "For this shell alone:",
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
            "Pages of the verbs.",
        ),
        (
            "/usr/local/share/man/man5/longshore.toml.5",
            "The page of the configuration file.",
        ),
    ],
    examples: &[
        (
            "Read a page that is not installed:",
            "longshore manual serve | man -l -",
        ),
        (
            "Write all pages:",
            "longshore manual --directory /usr/local/share/man",
        ),
    ],
    see_also: &[("longshore", "1"), ("longshore.toml", "5"), ("man", "1")],
};
