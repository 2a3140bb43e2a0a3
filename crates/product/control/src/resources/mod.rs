//! One module for each resource. Each gives its routes.

pub(crate) mod config;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod logins;
pub(crate) mod maps;
pub(crate) mod objects;
pub(crate) mod pools;
pub(crate) mod sessions;
pub(crate) mod tokens;
