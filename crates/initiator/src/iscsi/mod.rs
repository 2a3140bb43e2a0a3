//! Iscsi.
