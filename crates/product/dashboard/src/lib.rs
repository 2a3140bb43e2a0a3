//! The pages of the dashboard: documents of the control API in, HTML out.
//!
//! ```text
//!  control: log-in, cookies ─► Frame (viewer, status) ─┐
//!  /api/v1 documents: objects, sessions, events … ─────┼─► page ─► HTML ─► browser ─► dashboard.js ─► /api/v1
//!  Activity: two samples and their Rates ──────────────┘
//! ```
//!
//! A page shows what the API tells and nothing else. It is complete without its script, and can then only be read: forms
//! are shown to roles that may use them, and send their requests to the API by the script. Texts of peers, volumes and
//! files are hostile; `maud` escapes all of them. There is no inline script and no inline style, so that the content
//! security policy ([`CONTENT_SECURITY_POLICY`]) can forbid both.

#![forbid(unsafe_code)]

mod activity;
pub mod assets;
mod figures;
mod form;
mod frame;
mod page;
mod table;

pub use activity::{Activity, Basis, Moment};
pub use frame::{Frame, Section, Theme, Viewer};
pub use page::{
    Configuration, Happenings, Overview, Targets, configuration, cores, events, failure, log_in,
    object, overview, pipeline, sessions, targets, volumes,
};

/// What a browser may load and do on the pages: files of this server, and nothing inline.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
