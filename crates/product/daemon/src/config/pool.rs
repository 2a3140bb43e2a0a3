//! The words of pools and of their volumes, for the command line and the file.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use longshore_pool::place::Codec;
use longshore_pool::{PoolOptions, RESERVE_FULL};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use toml::Spanned;

use super::size::Size;
use super::suggest;

/// What separates the drives of a pool in one text.
const AND: char = '+';

/// A pool that volumes can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    pub name: String,
    /// All its drives, in any order.
    pub drives: Vec<PathBuf>,
    /// The drives are opened with O_DIRECT.
    pub direct: bool,
}

/// A table `[[pool]]` of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PoolTable {
    /// What volumes call it.
    pub name: Spanned<String>,
    /// Files and devices that it lies on.
    pub drives: Spanned<Vec<PathBuf>>,
    pub direct: Option<bool>,
}

/// What is said of a volume of a pool; `None` is "not given".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSettings {
    /// The name of a pool, or its drives.
    pub pool: Option<PoolPlace>,
    /// What the volume is called in the pool.
    pub volume: Option<String>,
    pub compression: Option<Compression>,
    /// Bytes that it and its snapshots may take.
    pub quota: Option<Quota>,
    /// Bytes that are kept for it.
    pub reserve: Option<Reserve>,
}

impl PoolSettings {
    /// The specification with these settings.
    #[must_use]
    pub fn specification(self) -> PoolOptions {
        let drives = self.pool.map(|place| place.0).unwrap_or_default();
        PoolOptions {
            drives: drives.into_iter().map(PathBuf::from).collect(),
            volume: self.volume,
            compression: self.compression.map(|it| it.0),
            quota: self.quota.map(|quota| quota.0),
            reserve: self.reserve.map(|reserve| reserve.0),
        }
    }

    /// Puts the drives in the place of the name of a pool, and has `resolve` complete their paths. Tells whether the
    /// drives are to be opened with O_DIRECT.
    ///
    /// # Errors
    /// There is no such pool.
    pub(super) fn find(
        &mut self,
        pools: &[PoolConfig],
        resolve: impl Fn(&Path) -> PathBuf,
    ) -> Result<bool, PoolSettingError> {
        let Some(PoolPlace(place)) = &mut self.pool else {
            return Ok(false);
        };
        let as_text = |path: &PathBuf| path.to_string_lossy().into_owned();
        if let [name] = &place[..]
            && !name.contains('/')
        {
            let Some(pool) = pools.iter().find(|pool| pool.name == *name) else {
                let names: Vec<&str> = pools.iter().map(|pool| &*pool.name).collect();
                return Err(PoolSettingError::Unknown {
                    suggestion: suggest::did_you_mean(name, &names),
                    pool: name.clone(),
                });
            };
            *place = pool.drives.iter().map(as_text).collect();
            return Ok(pool.direct);
        }
        for drive in place {
            *drive = as_text(&resolve(Path::new(&*drive)));
        }
        Ok(false)
    }
}

/// Why a setting of a volume of a pool is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolSettingError {
    #[error(
        "`{0}` names no pool; write the name of a pool, or its drives: /srv/a.img{AND}/srv/b.img"
    )]
    Place(String),
    #[error("`{0}` is not a compression; use none, lz4 or zstd")]
    Compression(String),
    #[error("`{0}` is not a quota; use none, or a size such as 20G")]
    Quota(String),
    #[error("`{0}` is not what can be reserved; use none, full, or a size such as 20G")]
    Reserve(String),
    #[error(
        "there is no pool `{pool}`{suggestion}; add a [[pool]] table, or write the paths of its drives, with a `/`: \
         ./tank.img"
    )]
    Unknown {
        pool: String,
        /// `; did you mean …?`
        suggestion: String,
    },
}

/// The name of a pool, or the paths of its drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPlace(pub Vec<String>);

impl FromStr for PoolPlace {
    type Err = PoolSettingError;

    fn from_str(text: &str) -> Result<Self, PoolSettingError> {
        let parts: Vec<String> = text.split(AND).map(str::to_owned).collect();
        if parts.iter().any(String::is_empty) {
            return Err(PoolSettingError::Place(text.to_owned()));
        }
        Ok(Self(parts))
    }
}

impl<'de> Deserialize<'de> for PoolPlace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(text) => text.parse().map_err(D::Error::custom),
            toml::Value::Array(list) => {
                let parts = list.iter().map(|part| part.as_str().map(str::to_owned));
                let parts: Option<Vec<String>> = parts.collect();
                let parts = parts
                    .filter(|parts| !parts.is_empty() && parts.iter().all(|part| !part.is_empty()));
                parts.map(Self).ok_or_else(|| {
                    D::Error::custom("the drives of a pool are a list of paths, in quotes")
                })
            }
            _ => Err(D::Error::custom(
                "a pool is its name, or a list of its drives, in quotes",
            )),
        }
    }
}

/// How what is written is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression(pub Codec);

impl Compression {
    /// The word for it.
    #[must_use]
    pub const fn word(codec: Codec) -> &'static str {
        match codec {
            Codec::Raw => "none",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }
}

impl FromStr for Compression {
    type Err = PoolSettingError;

    fn from_str(text: &str) -> Result<Self, PoolSettingError> {
        let known = [Codec::Raw, Codec::Lz4, Codec::Zstd].into_iter();
        let found = known.map(Self).find(|it| Self::word(it.0) == text);
        found.ok_or_else(|| PoolSettingError::Compression(text.to_owned()))
    }
}

deserialize_from_str!(Compression);

/// Bytes that a volume and its snapshots may take; 0: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota(pub u64);

impl FromStr for Quota {
    type Err = PoolSettingError;

    fn from_str(text: &str) -> Result<Self, PoolSettingError> {
        match text {
            "none" => Ok(Self(0)),
            _ => match Size::parse(text) {
                Ok(size) => Ok(Self(size.0)),
                Err(_) => Err(PoolSettingError::Quota(text.to_owned())),
            },
        }
    }
}

/// Bytes that are kept for a volume; 0: none; [`RESERVE_FULL`]: its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve(pub u64);

impl Reserve {
    /// What is written for it.
    #[must_use]
    pub fn word(self) -> String {
        match self.0 {
            0 => "none".to_owned(),
            RESERVE_FULL => "full".to_owned(),
            bytes => bytes.to_string(),
        }
    }
}

impl FromStr for Reserve {
    type Err = PoolSettingError;

    fn from_str(text: &str) -> Result<Self, PoolSettingError> {
        match text {
            "none" => Ok(Self(0)),
            "full" => Ok(Self(RESERVE_FULL)),
            _ => match Size::parse(text) {
                Ok(size) => Ok(Self(size.0)),
                Err(_) => Err(PoolSettingError::Reserve(text.to_owned())),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_number(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Reserve {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_number(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

/// Sizes are written as text, or as numbers of bytes.
fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match toml::Value::deserialize(deserializer)? {
        toml::Value::String(text) => Ok(text),
        toml::Value::Integer(number) => Ok(number.to_string()),
        other => Err(D::Error::custom(format!("`{other}` is not a size"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_a_name_or_its_drives() {
        let pools = [PoolConfig {
            name: "tank".to_owned(),
            drives: vec!["/a".into(), "/b".into()],
            direct: true,
        }];
        let find = |text: &str| {
            let mut settings = PoolSettings {
                pool: Some(text.parse().unwrap()),
                ..PoolSettings::default()
            };
            let is_direct = settings.find(&pools, |path| Path::new("/base").join(path))?;
            Ok::<_, PoolSettingError>((settings.specification().drives, is_direct))
        };
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(find("tank").unwrap(), (paths(&["/a", "/b"]), true));
        assert_eq!(
            find("./t+/u").unwrap(),
            (paths(&["/base/./t", "/u"]), false)
        );
        let refused = find("tnk").unwrap_err().to_string();
        assert!(refused.contains("did you mean `tank`"), "{refused}");
        for bad in ["", "a+", "+a"] {
            bad.parse::<PoolPlace>().unwrap_err();
        }
    }
}
