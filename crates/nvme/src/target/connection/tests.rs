//! Conversations with hosts, some of which break rules.
