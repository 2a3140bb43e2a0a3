//! SCST: `scst.conf` in both grammars.

mod access;
mod blocks;
mod device;
mod procfs;
mod sysfs;

use crate::configuration::Draft;
use crate::source::{ImportError, Options, Source};

pub(crate) fn read(
    source: &Source,
    options: &Options<'_>,
    draft: &mut Draft,
) -> Result<(), ImportError> {
    let section = |line: &str| line.trim_start().starts_with('[');
    if source.text.lines().any(section) {
        procfs::read(source, options, draft)
    } else {
        sysfs::read(source, options, draft)
    }
}
