//! What holds in the sandbox, in a line.

use std::fmt;
use std::path::Path;

use crate::files::Restricted;
use crate::policy::Policy;

/// A layer of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    Files,
    Connections,
    Listeners,
    Neighbours,
    Calls,
    Privileges,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files => "files",
            Self::Connections => "connections",
            Self::Listeners => "listeners",
            Self::Neighbours => "signals",
            Self::Calls => "system calls",
            Self::Privileges => "privileges",
        })
    }
}

/// What was taken from the process.
#[derive(Debug)]
pub struct Held {
    policy: Policy,
    privileges: Result<(), String>,
    files: Result<Restricted, String>,
    calls: Result<(), String>,
}

impl Held {
    pub(crate) const fn new(
        policy: Policy,
        privileges: Result<(), String>,
        files: Result<Restricted, String>,
        calls: Result<(), String>,
    ) -> Self {
        Self {
            policy,
            privileges,
            files,
            calls,
        }
    }

    /// The layers that hold.
    #[must_use]
    pub fn layers(&self) -> Vec<Layer> {
        let files = self.files.as_ref().ok();
        let has = [
            (files.is_some(), Layer::Files),
            (self.has_ports(), Layer::Connections),
            (
                self.has_ports() && self.policy.listen_ports.is_some(),
                Layer::Listeners,
            ),
            (
                files.is_some_and(Restricted::is_complete),
                Layer::Neighbours,
            ),
            (self.calls.is_ok(), Layer::Calls),
            (self.privileges.is_ok(), Layer::Privileges),
        ];
        let has = has.into_iter().filter(|(holds, _)| *holds);
        has.map(|(_, layer)| layer).collect()
    }

    /// What does not hold, and why.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        match &self.files {
            Err(reason) => missing.push(format!("files, connections, signals: {reason}")),
            Ok(restricted) => {
                if !restricted.has_ports() {
                    missing.push("connections: this needs Linux 6.7".to_owned());
                }
                if !restricted.is_complete() {
                    missing.push("signals: this needs Linux 6.12".to_owned());
                }
            }
        }
        for (layer, outcome) in [
            (Layer::Calls, &self.calls),
            (Layer::Privileges, &self.privileges),
        ] {
            if let Err(reason) = outcome {
                missing.push(format!("{layer}: {reason}"));
            }
        }
        missing
    }

    /// Refuses further rings of io_uring, when the event loops have theirs.
    ///
    /// # Errors
    /// Why not.
    pub fn refuse_rings(&self) -> Result<(), String> {
        match &self.calls {
            Ok(()) => crate::filter::refuse_rings(),
            // Without the other filters there is nothing to go around.
            Err(_) => Ok(()),
        }
    }

    /// Whether a volume at this path could be opened or made.
    #[must_use]
    pub fn permits_file(&self, path: &Path) -> bool {
        self.files.is_err() || self.policy.permits_file(path)
    }

    /// Whether a file at this path could be read.
    #[must_use]
    pub fn permits_read(&self, path: &Path) -> bool {
        self.files.is_err() || self.policy.permits_read(path)
    }

    /// Whether this port could be listened on.
    #[must_use]
    pub fn permits_listen(&self, port: u16) -> bool {
        let ports = self.policy.listen_ports.as_ref();
        !self.has_ports() || ports.is_none_or(|ports| ports.contains(&port))
    }

    /// Whether this port of another machine could be connected to.
    #[must_use]
    pub fn permits_connect(&self, port: u16) -> bool {
        !self.has_ports() || self.policy.connect_ports.contains(&port)
    }

    fn has_ports(&self) -> bool {
        self.files.as_ref().is_ok_and(Restricted::has_ports)
    }
}

/// One line: `files, connections; not signals: this needs Linux 6.12`.
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers: Vec<String> = self.layers().iter().map(Layer::to_string).collect();
        match layers.is_empty() {
            true => f.write_str("nothing")?,
            false => f.write_str(&layers.join(", "))?,
        }
        for reason in self.missing() {
            write!(f, "; not {reason}")?;
        }
        Ok(())
    }
}
