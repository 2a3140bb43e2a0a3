//! What crosses sessions and cores, over sockets: a server in this process with several shards, and
//! an initiator that shares no code with it.

mod accepting;
mod access;
mod atomicity;
mod copies;
mod counts;
mod faults;
mod gate_volume;
mod hang_up;
mod lifecycle;
mod lost_queues;
mod memory;
mod moving;
mod reinstatement;
mod scene;
mod slow;
mod switch;
mod target_ports;
mod task_management;
mod transfers;
