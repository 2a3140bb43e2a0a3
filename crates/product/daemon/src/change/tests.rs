//! Changes on a server that only remembers what it was told.

mod closing;
mod crashes;
mod failures;
mod fake;
mod objects;
mod owners;
mod reports;
mod revisions;
mod scene;
mod sessions;
mod sizes;
