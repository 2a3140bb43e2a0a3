//! The dashboard in a real browser: a story with assertions, and pictures to look at.

mod browser;
mod load;
mod pictures;
mod story;

use anyhow::Result;

use crate::arguments::Arguments;
use crate::counts::Counts;

/// `cargo xtask dashboard`: the story; with `--pictures FOLDER`, all pages in all sizes; with `--update`, the picture of
/// the README.
pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let pictures = arguments.value("--pictures")?;
    let update = arguments.flag("--update");
    arguments.finish()?;
    if let Some(folder) = pictures {
        return pictures::all(folder.as_ref());
    }
    if update {
        return pictures::readme();
    }
    story::run()
}
