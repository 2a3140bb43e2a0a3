//! Execution of commands: from a task, or without one, to a volume and back.
//!
//! | module | subject |
//! |---|---|
//! | [`task`] | one command that has to wait, or may have to |
//! | [`tasks`] | those of a connection, and what they hold |
//! | [`write_data`] | memory for write data |
//! | [`medium`] | an operation on the medium: the one way from a command to a volume |
//! | [`plain`] | reads and writes that need no task |
//! | [`reads`] | reads that need no buffer |
//! | [`pages`] | reads by reference |
//! | [`conversion`] | blocks to bytes and back |
//! | [`inline_reads`] | what reading asks of a protocol's machine |

mod conversion;
pub(crate) mod inline_reads;
pub(crate) mod medium;
pub(crate) mod pages;
pub(crate) mod plain;
pub(crate) mod reads;
pub(crate) mod task;
pub(crate) mod tasks;
pub(crate) mod write_data;
