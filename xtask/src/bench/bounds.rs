//! Processors of server and client, and the size of the load.

pub const SERVER_CORE: &str = "0";
pub const CLIENT_CORE: &str = "1";

/// Bytes that the load spreads over; all servers hold them in memory.
pub const SPAN: u64 = 64 << 20;

/// Any volume larger than the span will do.
pub const VOLUME_SIZE: u64 = 256 << 20;

/// `taskset -c CORE`, or nothing where there is one processor only.
pub fn pinned(core: &str) -> Vec<String> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if processors < 2 {
        return Vec::new();
    }
    ["taskset", "-c", core].map(str::to_owned).to_vec()
}
