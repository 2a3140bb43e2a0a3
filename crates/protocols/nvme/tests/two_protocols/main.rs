//! One volume, SCSI sessions and NVMe controllers: reservations of either hold for both.

mod facts;
mod model;
mod world;
