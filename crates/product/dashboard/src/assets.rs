//! The files of the pages. A path holds the hash of its file, so that a browser may keep it for good.

use std::fmt::Write as _;
use std::sync::LazyLock;

use sha2::{Digest, Sha256};

/// Where all of them are.
pub const FOLDER: &str = "/ui/assets";

/// A file of the pages.
#[derive(Debug)]
pub struct Asset {
    pub name: &'static str,
    pub content_type: &'static str,
    pub bytes: &'static [u8],
    pub path: String,
}

macro_rules! assets {
    ($($name:literal $content_type:literal $file:literal,)*) => {
        static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| vec![
            $(Asset::new($name, $content_type, include_bytes!(concat!("../assets/", $file))),)*
        ]);
    };
}

assets! {
    "dashboard.css" "text/css; charset=utf-8" "dashboard.css",
    "dashboard.js" "text/javascript; charset=utf-8" "dashboard.js",
    "uPlot.css" "text/css; charset=utf-8" "uplot/uPlot.min.css",
    "uPlot.js" "text/javascript; charset=utf-8" "uplot/uPlot.min.js",
    "icon.svg" "image/svg+xml" "icon.svg",
}

impl Asset {
    fn new(name: &'static str, content_type: &'static str, bytes: &'static [u8]) -> Self {
        let mut hash = String::new();
        for byte in &Sha256::digest(bytes)[..8] {
            // Writing into a String does not fail.
            let _ = write!(hash, "{byte:02x}");
        }
        Self {
            name,
            content_type,
            bytes,
            path: format!("{FOLDER}/{hash}/{name}"),
        }
    }
}

/// The file at a path, if it is the one of this program.
#[must_use]
pub fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

/// The path of a file.
pub(crate) fn path(name: &str) -> &'static str {
    let found = ASSETS.iter().find(|asset| asset.name == name);
    found.map_or("", |asset| &asset.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_by_the_path_with_its_hash_alone() {
        let script = path("dashboard.js");
        assert!(script.starts_with("/ui/assets/") && script.ends_with("/dashboard.js"));
        assert_eq!(find(script).unwrap().name, "dashboard.js");
        assert!(find("/ui/assets/0000000000000000/dashboard.js").is_none());
        assert!(find("/ui/assets/../Cargo.toml").is_none());
    }

    #[test]
    fn the_script_is_one_module_that_asks_nobody_but_this_server() {
        let script = std::str::from_utf8(find(path("dashboard.js")).unwrap().bytes).unwrap();
        for forbidden in [
            "http://",
            "https://",
            "innerHTML",
            "eval(",
            "import ",
            ".style.",
        ] {
            assert!(!script.contains(forbidden), "{forbidden}");
        }
    }
}
