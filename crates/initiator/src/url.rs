//! Url.
