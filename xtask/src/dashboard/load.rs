//! Clients that give the pages something to show.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use longshore_tests::server::TARGET;

use crate::served::Served;

/// Clients that read and write. Killed when this value goes away.
pub struct Clients(Vec<Child>);

impl Clients {
    /// One for each LUN of the default target.
    pub fn start(served: &Served, luns: &[u32]) -> Result<Self> {
        let mut clients = Self(Vec::new());
        for lun in luns {
            let url = format!("iscsi://{}/{TARGET}/{lun}", served.server.portal(0));
            let (size, rate) = if lun % 2 == 0 {
                ("4k", "2600")
            } else {
                ("64k", "300")
            };
            let client = Command::new(&served.program)
                .args([
                    "bench", &url, "--time", "1h", "--rw", "randrw", "--bs", size,
                ])
                .args(["--rate", rate, "--iodepth", "4", "--output", "json"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .context("start a client")?;
            clients.0.push(client);
        }
        Ok(clients)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        for client in &mut self.0 {
            let _ = client.kill();
            let _ = client.wait();
        }
    }
}
