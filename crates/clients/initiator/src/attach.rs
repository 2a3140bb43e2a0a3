//! Attaching a volume: from a URL to connected queues.

use crate::error::Error;
use crate::options::Options;
use crate::other_protocol::attach_first;
use crate::url::Url;

pub use crate::attach_path::attach_path;
pub use crate::attachment::{Attachment, Control};

/// Attaches a volume over the first of its portals that works. Blocks, within the time-outs.
///
/// # Errors
/// No portal works; says why for each.
pub fn attach(url: &Url, options: &Options) -> Result<Attachment, Error> {
    let mut errors = Vec::new();
    for portal in 0..url.portals().len() {
        match attach_first(url, portal, options) {
            Ok(attachment) => return Ok(attachment),
            Err(error) => errors.push(error),
        }
    }
    match errors.pop() {
        Some(only) if errors.is_empty() => Err(only),
        Some(last) => {
            errors.push(last);
            Err(Error::AllPortals(errors))
        }
        None => Err(Error::Options("the URL names no portal".to_owned())),
    }
}
