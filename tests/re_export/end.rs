//! How it ends: B is gone for good, or A is stopped.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use longshore_tests::scratch::Scratch;
use longshore_tests::server::ServerBuilder;
use longshore_tests::skip::skip;

use crate::rig::{BOTH, Client, Iscsi, over, over_url, pattern, serving};

#[test]
fn operations_fail_after_the_time_given_up_after_and_go_well_when_b_is_back() {
    for behind in BOTH {
        let scratch = Scratch::new("re-export");
        let volume = format!(
            "f,backend=file,path={},size=1M",
            scratch.join("disk").display()
        );
        let b = serving(&volume).start().unwrap();
        let (portal, nvme) = (b.portal(0), b.nvme(0));
        let a = over(&b, behind, ",give-up=1s").start().unwrap();
        for in_front in BOTH {
            let client = Client::new(&a, in_front);
            client.write(0, &pattern(0, 4096, 1), false).unwrap();
        }
        b.kill().unwrap();
        for in_front in BOTH {
            let client = Client::new(&a, in_front);
            let start = Instant::now();
            client
                .write(0, &pattern(0, 4096, 2), false)
                .expect_err("nobody is there");
            client.read(0, 4096).expect_err("nobody is there");
            assert!(
                start.elapsed() < Duration::from_secs(15),
                "{:?}",
                start.elapsed()
            );
        }
        let b = ServerBuilder::new()
            .volume(&volume)
            .iscsi_at(portal, "")
            .nvme_at(nvme, "")
            .start()
            .unwrap();
        for in_front in BOTH {
            let client = Client::new(&a, in_front);
            let deadline = Instant::now() + Duration::from_secs(30);
            while let Err(error) = client.write(0, &pattern(0, 4096, 3), true) {
                assert!(Instant::now() < deadline, "B is back, but: {error}");
                thread::sleep(Duration::from_millis(100));
            }
            assert!(client.read(0, 4096).unwrap() == pattern(0, 4096, 3));
        }
        drop(b);
    }
}

#[test]
fn stopping_a_is_not_held_up_by_a_b_that_is_gone() {
    for behind in BOTH {
        for gone in ["killed", "stopped"] {
            let b = serving("m,backend=mem,size=1M").start().unwrap();
            // It would be waited for much longer.
            let a = over(&b, behind, ",give-up=10m")
                .config("[limits]\ndrain-timeout = \"4s\"\n")
                .start()
                .unwrap();
            let client = Client::new(&a, behind);
            client.write(0, &pattern(0, 4096, 1), false).unwrap();
            let stalled = b.process();
            let held = match gone {
                "killed" => {
                    b.kill().unwrap();
                    None
                }
                _ => {
                    longshore_tests::server::signal(b.pid(), "STOP").unwrap();
                    Some(b)
                }
            };
            thread::scope(|scope| {
                let waiting = scope.spawn(|| client.write(0, &pattern(0, 4096, 2), false));
                // The write has arrived, and waits for B.
                a.process().wait_until_at_rest();
                let start = Instant::now();
                let status = a.stop(Duration::from_secs(40)).unwrap();
                println!(
                    "{behind:?}, B {gone}: A ended after {:.1?} {status}",
                    start.elapsed()
                );
                assert!(
                    start.elapsed() < Duration::from_secs(20),
                    "{:?}",
                    start.elapsed()
                );
                assert_eq!(status.code(), Some(0), "{behind:?} {gone}");
                client.0.clone().close();
                let _ = waiting.join();
            });
            drop((stalled, held));
        }
    }
}

/// B has a write cache, and is not there to flush it.
#[test]
fn a_last_flush_that_does_not_reach_b_makes_the_exit_status_1() {
    for behind in BOTH {
        let scratch = Scratch::new("re-export");
        let disk = scratch.join("disk");
        let volume = format!("f,backend=file,path={},size=1M", disk.display());
        let b = serving(&volume).start().unwrap();
        let a = over(&b, behind, ",give-up=10m")
            .config("[limits]\ndrain-timeout = \"3s\"\n")
            .start()
            .unwrap();
        let client = Client::new(&a, behind);
        client.write(0, &pattern(0, 4096, 1), false).unwrap();
        client.0.close();
        b.kill().unwrap();
        let status = a.stop(Duration::from_secs(40)).unwrap();
        assert_eq!(status.code(), Some(1), "{behind:?}");
    }
}

#[test]
fn stopping_a_flushes_b() {
    match Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .output()
    {
        Err(error) => return skip(format!("there is no strace to see flushes with: {error}")),
        Ok(traced) if !traced.status.success() => {
            let why = String::from_utf8_lossy(&traced.stderr).into_owned();
            return skip(format!("nothing can be traced here: {why}"));
        }
        Ok(_) => {}
    }
    for behind in BOTH {
        let scratch = Scratch::new("re-export");
        let calls = scratch.join("calls");
        let calls = calls.to_str().unwrap();
        let b = serving(&format!(
            "f,backend=file,path={},size=1M",
            scratch.join("disk").display()
        ))
        .argument("--engine")
        .argument("epoll")
        // A server that is traced outlives its tracer unless it is told not to.
        .below(&[
            "strace",
            "-f",
            "-e",
            "trace=fdatasync",
            "-o",
            calls,
            "setpriv",
            "--pdeathsig",
            "KILL",
        ])
        .start()
        .unwrap();
        let a = over(&b, behind, "").start().unwrap();
        let client = Client::new(&a, behind);
        client.write(0, &pattern(0, 4096, 1), false).unwrap();
        let flushes = || {
            std::fs::read_to_string(calls)
                .unwrap()
                .matches("fdatasync(")
                .count()
        };
        let before = flushes();
        client.0.close();
        assert_eq!(a.stop(Duration::from_secs(20)).unwrap().code(), Some(0));
        assert!(flushes() > before, "A flushed before it ended");
    }
}

#[test]
fn a_does_not_start_without_b_and_says_what_to_do() {
    let b = serving("m,backend=mem,size=1M").start().unwrap();
    let urls = BOTH.map(|protocol| (protocol, protocol.url(&b)));
    for (protocol, url) in &urls {
        let wrong = match protocol {
            Iscsi => url.replace("/0", "/7"),
            _ => url.replace(":default/1", ":default/7"),
        };
        let (status, log) = over_url(*protocol, &wrong, "").start_and_fail().unwrap();
        assert_eq!(status.code(), Some(1));
        assert!(log.contains("there is no"), "{log}");
    }
    drop(b);
    for (protocol, url) in urls {
        let start = Instant::now();
        let (status, log) = over_url(protocol, &url, "").start_and_fail().unwrap();
        assert_eq!(status.code(), Some(1));
        assert!(log.contains("check that the server runs there"), "{log}");
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn no_password_is_ever_shown() {
    const SECRET: &str = "hush-hush-hush-hush";
    let config = format!(
        "[[target]]\nname = \"{}\"\naccounts = [{{ user = \"ann\", secret = \"{SECRET}\" }}]\n",
        longshore_tests::server::TARGET
    );
    let b = serving("m,backend=mem,size=1M")
        .config(&config)
        .start()
        .unwrap();
    let url = Iscsi
        .url(&b)
        .replace("iscsi://", &format!("iscsi://ann%{SECRET}@"));
    let a = over_url(Iscsi, &url, "")
        .argument("--log-level")
        .argument("trace")
        .argument("--print-connect")
        .start()
        .unwrap();
    Client::new(&a, Iscsi)
        .write(0, &pattern(0, 4096, 1), true)
        .unwrap();
    assert!(
        a.log()
            .contains("every user of this machine can see the password"),
        "{}",
        a.log()
    );
    let wrong = over_url(Iscsi, &format!("{url}x"), "")
        .start_and_fail()
        .unwrap()
        .1;
    let unknown = over_url(Iscsi, &url, ",giveup=1")
        .start_and_fail()
        .unwrap()
        .1;
    drop(b);
    let away = over_url(Iscsi, &url, "").start_and_fail().unwrap().1;
    a.process().wait_until_at_rest();
    for text in [a.log(), a.output(), wrong, unknown, away] {
        assert!(!text.contains("hush"), "{text}");
    }
}
