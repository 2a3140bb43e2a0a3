//! The first lines of a job, which say what it wants of the host.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::script::{LIMIT, parse_size, read_script};
use crate::vm::debian::Release;

/// What a job wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Served as LUN 0, 1, …
    pub volumes: Vec<Volume>,
    /// Listeners for iSCSI, each behind a relay.
    pub portals: usize,
    /// Listeners for NVMe/TCP, each behind a relay.
    pub nvme: usize,
    /// Processors of the guest.
    pub processors: u32,
    /// Further words for the kernel's command line.
    pub kernel_words: String,
    /// A configuration file beside the job, instead of volumes on the command line.
    pub config: Option<String>,
    /// Whether the host runs verbs of the control plane for the job.
    pub api: bool,
    /// Whether the servers run in the guest, and none on the host.
    pub serves_itself: bool,
    /// Whether the guest has Debian's general kernel instead of the cloud kernel.
    pub is_general: bool,
    /// The release of Debian of a guest with TLS and authentication.
    pub secure: Option<Release>,
    /// Ports of the guest that the host reaches.
    pub forwards: usize,
    /// Files with secrets: their names and texts.
    pub secrets: Vec<(String, String)>,
    /// When the job has hung.
    pub limit: Duration,
}

/// What a guest has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GuestKind {
    /// The initiators of Debian 12, for iSCSI and NVMe.
    Initiator,
    /// The servers of its initiators, too.
    Servers,
    /// Those initiators on Debian's general kernel.
    General,
    /// NVMe host and target of this release of Debian.
    Secure(Release),
}

/// One volume in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Name of the device, such as `disk0`.
    pub name: String,
    /// Size of the device in bytes.
    pub size: u64,
    /// Further options of the command line: `block-size=4096`.
    pub options: Vec<String>,
}

impl Header {
    /// Reads the comments at the top of `script`.
    pub fn read(script: &Path) -> Result<Self> {
        Self::parse(&read_script(script)?).with_context(|| format!("in {}", script.display()))
    }

    /// What this job wants and tgt does not have.
    pub fn tgt_lacks(&self) -> Option<&'static str> {
        match self {
            Self {
                serves_itself: true,
                secure: None,
                ..
            } => Some("imports"),
            _ if self.nvme > 0 || self.secure.is_some() => Some("NVMe"),
            _ if self.api => Some("such API"),
            _ => None,
        }
    }

    pub fn guest(&self) -> GuestKind {
        match (self.secure, self.serves_itself) {
            (Some(release), _) => GuestKind::Secure(release),
            (None, true) => GuestKind::Servers,
            (None, false) if self.is_general => GuestKind::General,
            (None, false) => GuestKind::Initiator,
        }
    }

    fn parse(text: &str) -> Result<Self> {
        let mut header = Self {
            volumes: Vec::new(),
            portals: 1,
            nvme: 0,
            processors: 1,
            kernel_words: String::new(),
            config: None,
            api: false,
            serves_itself: false,
            is_general: false,
            secure: None,
            forwards: 0,
            secrets: Vec::new(),
            limit: LIMIT,
        };
        for line in text.lines().take_while(|line| line.starts_with('#')) {
            let Some((key, value)) = line.trim_start_matches(['#', ' ']).split_once(": ") else {
                continue;
            };
            match key {
                "volume" => header.volumes.push(volume(value)?),
                "portals" => header.portals = value.parse()?,
                "nvme" => header.nvme = value.parse()?,
                "processors" => header.processors = value.parse()?,
                "kernel" => header.kernel_words = value.to_owned(),
                "config" => header.config = Some(value.to_owned()),
                "api" => header.api = value == "yes",
                "servers" => header.serves_itself = value == "guest",
                "guest" if value == "secure" => header.secure = Some(Release::Trixie),
                "guest" if value == "next" => header.secure = Some(Release::Forky),
                "guest" if value == "general" => header.is_general = true,
                "guest" => bail!("unknown guest {value:?}"),
                "forwards" => header.forwards = value.parse()?,
                "secret" => {
                    let (name, text) = value.split_once(' ').context("a secret without a text")?;
                    header.secrets.push((name.to_owned(), text.to_owned()));
                }
                "limit" => header.limit = Duration::from_secs(value.parse()?),
                _ if key.contains(' ') => {} // an ordinary sentence with a colon
                _ => bail!("unknown key {key:?}"),
            }
        }
        if header.is_general && (header.serves_itself || header.secure.is_some()) {
            bail!("a guest with the general kernel has initiators alone");
        }
        Ok(header)
    }
}

fn volume(value: &str) -> Result<Volume> {
    let mut words = value.split_whitespace().map(str::to_owned);
    let name = words.next().context("a volume has no name")?;
    let size = parse_size(&words.next().context("a volume has no size")?)?;
    Ok(Volume {
        name,
        size,
        options: words.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_portals_and_limit_are_read() {
        let text = "# Two disks.\n# volume: a 1G\n# volume: b 512M block-size=4096\n\
                    # portals: 2\n# nvme: 1\n# processors: 2\n# limit: 90\ntrue\n# portals: 9\n";
        let header = Header::parse(text).unwrap();
        assert_eq!(header.volumes[1].size, 512 << 20);
        assert_eq!(header.volumes[1].options, ["block-size=4096"]);
        assert_eq!((header.portals, header.nvme), (2, 1));
        assert_eq!((header.processors, header.limit.as_secs()), (2, 90));
    }

    #[test]
    fn secrets_may_hold_colons() {
        let text = "# guest: secure\n# forwards: 2\n# secret: a.psk NVMeTLSkey-1:01:VRL=:\n";
        let header = Header::parse(text).unwrap();
        assert_eq!(
            (header.guest(), header.forwards),
            (GuestKind::Secure(Release::Trixie), 2)
        );
        let secret = ("a.psk".to_owned(), "NVMeTLSkey-1:01:VRL=:".to_owned());
        assert_eq!(header.secrets, [secret]);
    }

    #[test]
    fn a_misspelt_key_is_refused() {
        assert!(Header::parse("# volumes: a 1G\n").is_err());
        assert!(Header::parse("# guest: generous\n").is_err());
    }

    #[test]
    fn the_general_kernel_is_for_initiators() {
        let header = Header::parse("# guest: general\n").unwrap();
        assert_eq!(header.guest(), GuestKind::General);
        assert!(Header::parse("# guest: general\n# servers: guest\n").is_err());
    }
}
