//! Pipelines, parts and advice, for a terminal, as a picture, and as a page that can be mailed.
//!
//! Texts of a probe may be those of a server. Pages and pictures escape them; a terminal gets no control characters.
//! A page is one file: it has its style and its pictures in it, no script, and no address of anything else.

#![forbid(unsafe_code)]

pub mod diagram;
mod escape;
pub mod page;
