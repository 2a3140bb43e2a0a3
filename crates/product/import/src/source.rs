//! Sources: their formats, their text, what they leave open, and why they cannot be read.

/// The longest file that is read, in bytes.
pub const SOURCE_BYTES_MAX: usize = 16 << 20;

/// Blocks or brackets within each other.
pub(crate) const DEPTH_MAX: usize = 32;

/// A server whose configuration can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Scst,
    Tgt,
    Lio,
    Nvmet,
    Spdk,
    Istgt,
}

impl Format {
    pub const ALL: [Self; 6] = [
        Self::Scst,
        Self::Tgt,
        Self::Lio,
        Self::Nvmet,
        Self::Spdk,
        Self::Istgt,
    ];

    /// The word of the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Scst => "scst",
            Self::Tgt => "tgt",
            Self::Lio => "lio",
            Self::Nvmet => "nvmet",
            Self::Spdk => "spdk",
            Self::Istgt => "istgt",
        }
    }

    /// The format of a text, by what only this format has.
    #[must_use]
    pub fn recognise(text: &str) -> Option<Self> {
        if text.trim_start().starts_with('{') {
            let has = |name: &str| text.contains(&format!("\"{name}\""));
            return if has("storage_objects") || has("fabric_modules") {
                Some(Self::Lio)
            } else if has("method") || has("config") {
                Some(Self::Spdk)
            } else if has("ports") || has("subsystems") || has("hosts") {
                Some(Self::Nvmet)
            } else {
                None
            };
        }
        let by_line = text.lines().find_map(|line| {
            let line = line.trim();
            let first = line.split_whitespace().next().unwrap_or_default();
            match first {
                "HANDLER" | "TARGET_DRIVER" | "DEVICE_GROUP" | "[HANDLER" | "[GROUP"
                | "[ASSIGNMENT" | "[OPTIONS]" | "[TARGETS" => Some(Self::Scst),
                "<target" | "default-driver" => Some(Self::Tgt),
                _ if line.starts_with("[Global]")
                    || line.starts_with("[LogicalUnit")
                    || line.starts_with("[PortalGroup") =>
                {
                    Some(Self::Istgt)
                }
                _ => None,
            }
        });
        // Debian's targets.conf has nothing else.
        let includes = |line: &str| line.trim_start().starts_with("include ");
        by_line.or_else(|| text.lines().any(includes).then_some(Self::Tgt))
    }
}

/// A file of the source: its text, and the name that messages use.
#[derive(Clone, Debug)]
pub struct Source {
    pub name: String,
    pub text: String,
}

/// What a source leaves open.
#[derive(Default)]
pub struct Options<'a> {
    /// `scst`, old grammar: the targets, which stand in another file there.
    pub targets: Vec<String>,
    /// `istgt`: the file with the secrets.
    pub authentication: Option<Source>,
    /// Take volumes whose cache was unsafe on purpose, and serve them safely.
    pub accept_unsafe_cache: bool,
    /// `tgt`: reads the files that match a pattern of `include`. `None`: includes are refused.
    #[allow(clippy::type_complexity)]
    pub include: Option<&'a dyn Fn(&str) -> Result<Vec<Source>, String>>,
}

/// A file that cannot be read at all.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("{name} has {bytes} bytes; at most {SOURCE_BYTES_MAX} are read")]
    TooLong { name: String, bytes: usize },
    #[error("{name}:{line}: {what}")]
    Syntax {
        name: String,
        line: u32,
        what: String,
    },
    #[error("{name} is not the configuration of {server}: {what}")]
    OtherFile {
        name: String,
        server: &'static str,
        what: String,
    },
}
