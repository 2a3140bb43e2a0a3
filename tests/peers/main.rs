//! The initiator library against servers: tgt, LIO, nvmet and ours. `cargo xtask peers` starts the
//! first three and passes their addresses in the environment; without them their tests are
//! skipped.

use libtest_mimic::Arguments;

fn main() {
    libtest_mimic::run(&Arguments::from_args(), Vec::new()).exit()
}
