//! Changes of a whole server while it runs: asked for by verbs, over HTTP, and by its file; seen by initiators and hosts.

mod accounts;
mod events;
mod figures;
mod file;
mod health;
mod kills;
mod objects;
mod plans;
mod ports;
mod removal;
mod rig;
mod rounds;
mod settings;
