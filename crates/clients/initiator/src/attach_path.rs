//! Attaching a volume over one of its portals, by the protocol of its URL.

use crate::attachment::Attachment;
use crate::error::Error;
use crate::options::Options;
use crate::url::Url;
use crate::{iscsi, nvme};

/// Attaches a volume over the portal with this number in its URL. Blocks, within the time-outs.
///
/// # Errors
/// Says where, why, and what to do next.
///
/// # Panics
/// When there is no such portal.
pub fn attach_path(url: &Url, portal: usize, options: &Options) -> Result<Attachment, Error> {
    let options = &options.for_url(url);
    match url {
        Url::Iscsi(url) => iscsi::attach_path(url, portal, options),
        Url::NvmeTcp(url) => nvme::attach_path(url, portal, options),
    }
}
