//! RESERVE (6) and RELEASE (6).
