//! Who may use the API: roles and tokens.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Read the metrics (`/metrics`).
    Metrics,
    /// Read everything but secrets.
    Read,
    /// The same, and close sessions.
    Operate,
    /// All of that, and change the configuration.
    Admin,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Metrics, Self::Read, Self::Operate, Self::Admin];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// Whether a caller of this role may do what needs `needed`.
    #[must_use]
    pub const fn allows(self, needed: Self) -> bool {
        self as u8 >= needed as u8
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a role; use read, operate, admin or metrics")]
pub struct UnknownRole(String);

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| UnknownRole(text.to_owned()))
    }
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TokenInfo {
    pub name: String,
    pub role: Role,
    pub created_ms: u64,
    /// Milliseconds since 1970 after which the token is void. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
}

/// A token that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TokenRequest {
    pub name: String,
    pub role: Role,
    /// Seconds until it is refused; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<u64>,
}

/// A new token. Its secret is told this once; the server keeps a hash of it.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct NewToken {
    #[serde(flatten)]
    pub info: TokenInfo,
    pub token: String,
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("NewToken");
        debug.field("info", &self.info).finish_non_exhaustive()
    }
}

/// A log-in of a browser to the dashboard.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct NewLogin {
    /// Valid once. The part behind the `#` is a secret.
    pub url: String,
    /// That of who asks.
    pub role: Role,
    /// Until when the URL is valid.
    pub expires_ms: u64,
}

impl fmt::Debug for NewLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("NewLogin");
        debug.field("role", &self.role).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_allows_what_lower_roles_allow() {
        for (place, role) in Role::ALL.into_iter().enumerate() {
            for (other, needed) in Role::ALL.into_iter().enumerate() {
                assert_eq!(role.allows(needed), place >= other, "{role} {needed}");
            }
            assert_eq!(role.name().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().is_err());
    }
}
