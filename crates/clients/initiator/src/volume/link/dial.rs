//! Links over real connections.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::{Dialer, Link, LinkControl, LinkQueue, Received, Rejected, Unfinished};
use crate::attach::{Control, attach_path};
use crate::error::{Error, Lost};
use crate::info::{Notice, VolumeInfo};
use crate::iscsi::fresh_isid;
use crate::operation::{Completion, Data, Operation};
use crate::options::Options;
use crate::other_protocol::attach_first;
use crate::queue::{AnyQueue, Refusal};
use crate::url::Url;

/// Attaches the volume of a URL.
pub(in crate::volume) struct UrlDialer {
    url: Url,
    /// With an ISID that stays: a login with that of a session that is still there ends that session.
    options: Options,
    /// A portal was attached once: the protocol of the URL is right.
    has_answered: AtomicBool,
}

impl UrlDialer {
    pub(in crate::volume) fn new(url: &Url, options: &Options) -> Self {
        let mut options = options.clone();
        if matches!(url, Url::Iscsi(_)) {
            options.iscsi.isid.get_or_insert_with(fresh_isid);
        }
        Self {
            url: url.clone(),
            options,
            has_answered: AtomicBool::new(false),
        }
    }
}

impl Dialer for UrlDialer {
    fn portals(&self) -> Vec<String> {
        self.url.portals().iter().map(ToString::to_string).collect()
    }

    fn dial(&self, portal: usize) -> Result<Link, Error> {
        let attach = match self.has_answered.load(Ordering::Relaxed) {
            true => attach_path,
            false => attach_first,
        };
        let attachment = attach(&self.url, portal, &self.options)?;
        self.has_answered.store(true, Ordering::Relaxed);
        Ok(Link {
            access: attachment.control.access(),
            info: attachment.info,
            address: attachment.portal,
            queues: attachment
                .queues
                .into_iter()
                .map(|queue| Box::new(queue) as Box<dyn LinkQueue>)
                .collect(),
            maps: attachment.maps,
            control: Box::new(attachment.control),
        })
    }

    fn redial_ends_former(&self) -> bool {
        matches!(self.url, Url::Iscsi(_))
    }
}

impl LinkQueue for AnyQueue {
    fn room(&self) -> usize {
        Self::room(self)
    }

    fn in_flight(&self) -> usize {
        Self::in_flight(self)
    }

    fn submit(&mut self, operation: &Operation, data: Data, tag: u64) -> Result<(), Rejected> {
        Self::submit(self, *operation, data, tag).map_err(|rejected| Rejected {
            data: rejected.data,
            failure: match rejected.refusal {
                Refusal::Busy => None,
                Refusal::Failed(failure) => Some(failure),
            },
        })
    }

    fn send(&mut self) -> Result<(), Lost> {
        // What the socket does not take now goes when the driver sees that it is writable.
        Self::send(self).map(|_| ())
    }

    fn has_unsent(&self) -> bool {
        Self::has_unsent(self)
    }

    fn receive(
        &mut self,
        completions: &mut Vec<Completion>,
        notices: &mut Vec<Notice>,
    ) -> Result<Received, Lost> {
        let received = Self::receive(self, completions);
        if self.has_notices() {
            self.take_notices(notices);
        }
        received.map(|received| Received {
            heard: received.bytes > 0,
            more: received.more,
        })
    }

    fn ping(&mut self) -> bool {
        Self::ping(self)
    }

    fn close(&mut self) -> bool {
        Self::close(self);
        self.has_unsent()
    }

    fn abandon(self: Box<Self>) -> Vec<Unfinished> {
        Self::abandon(*self)
            .into_iter()
            .map(|unfinished| Unfinished {
                tag: unfinished.tag,
                data: unfinished.data,
                was_sent: unfinished.was_sent,
                answer: unfinished.answer,
            })
            .collect()
    }

    fn socket(&self) -> BorrowedFd<'_> {
        Self::socket(self)
    }
}

impl LinkControl for Control {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Self::socket(self)
    }

    fn deadline(&self) -> Option<Instant> {
        Self::deadline(self)
    }

    fn drive(&mut self, now: Instant) -> Result<Vec<Notice>, Lost> {
        Self::drive(self, now)
    }

    fn identify(&mut self) -> Result<VolumeInfo, Error> {
        self.describe().map(|description| description.info)
    }

    fn end(self: Box<Self>) -> bool {
        self.close()
    }
}
