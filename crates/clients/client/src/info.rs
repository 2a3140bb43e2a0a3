//! `longshore info`: what there is to know of a remote volume.

use longshore_initiator::attach::attach;
use longshore_initiator::error::Error;
use longshore_initiator::info::{ReservationReport, VolumeInfo};
use longshore_initiator::options::{Options, QueueMaps};
use longshore_initiator::url::Url;
use serde::{Serialize, Serializer};
use uuid::Uuid;

/// A volume, as it is printed.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// The URL without passwords.
    pub url: String,
    /// The address that was connected.
    pub portal: String,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// Geometry, limits and names.
    #[serde(flatten)]
    pub volume: VolumeInfo,
    /// Parameters of the connection, by their standard's names, in the order to print.
    #[serde(serialize_with = "as_map")]
    pub negotiated: Vec<(String, String)>,
    /// Persistent reservations; `None` when the server has none to report.
    pub reservation: Option<ReservationReport>,
}

impl Info {
    /// Whether the volume's worldwide names are made of this UUID.
    #[must_use]
    pub fn has_uuid(&self, uuid: Uuid) -> bool {
        crate::endpoint::is_made_of(&self.volume, uuid)
    }
}

fn as_map<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

/// Attaches the volume, asks, and lets go of it. Nothing is read or written.
///
/// # Errors
/// Says where, why, and what to do next.
pub fn info(url: &Url, options: &Options) -> Result<Info, Error> {
    let options = Options {
        queues: QueueMaps::plain(1),
        depth: 2,
        ..options.clone()
    };
    let mut attachment = attach(url, &options)?;
    let description = attachment.control.describe();
    drop(attachment.queues);
    attachment.control.close();
    let description = description?;
    Ok(Info {
        url: url.to_string(),
        portal: attachment.portal.to_string(),
        size_bytes: description.info.size_bytes(),
        volume: description.info,
        negotiated: description.negotiated,
        reservation: description.reservation,
    })
}
