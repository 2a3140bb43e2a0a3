//! The pages, one file each.

mod configuration;
mod cores;
mod events;
mod gate;
mod object;
mod overview;
mod pipeline;
mod sessions;
mod targets;
#[cfg(test)]
mod tests;
mod volumes;

pub use configuration::{Configuration, configuration};
pub use cores::cores;
pub use events::{Happenings, events};
pub use gate::{failure, log_in};
pub use object::object;
pub use overview::{Overview, overview};
pub use pipeline::pipeline;
pub use sessions::sessions;
pub use targets::{Targets, targets};
pub use volumes::volumes;
