//! A server that has a remote volume and nothing to do.

use std::thread;
use std::time::Duration;

use crate::rig::{BOTH, Client, over, pattern, serving};

const WATCHED: Duration = Duration::from_secs(8);

/// 0.5 % of one core: it asks the other server from time to time whether it is there.
const CPU_LIMIT: Duration = Duration::from_millis(40);

#[test]
fn an_idle_server_with_a_remote_volume_uses_next_to_no_cpu() {
    for behind in BOTH {
        let b = serving("m,backend=mem,size=1M").start().unwrap();
        let a = over(&b, behind, "").start().unwrap();
        let client = Client::new(&a, behind);
        client.write(0, &pattern(0, 4096, 1), false).unwrap();
        drop(client);
        let process = a.process();
        process.wait_until_at_rest();
        let before = process.cpu_time().unwrap();
        // Time is the subject: what the server does meanwhile is measured.
        thread::sleep(WATCHED);
        let used = process.cpu_time().unwrap() - before;
        println!("{behind:?}: {used:.2?} CPU in {WATCHED:?}");
        assert!(used < CPU_LIMIT, "{behind:?}: {used:?} in {WATCHED:?}");
    }
}
