//! The protocol that a count belongs to.

/// Which protocol a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub enum ProtocolKind {
    #[serde(rename = "iscsi")]
    Iscsi,
    #[serde(rename = "nvme-tcp")]
    NvmeTcp,
}

impl ProtocolKind {
    /// As configuration and reports call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iscsi => "iscsi",
            Self::NvmeTcp => "nvme-tcp",
        }
    }
}
