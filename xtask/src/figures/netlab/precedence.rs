//! Precedence of a set-up's programs over all others, by a real-time policy of the kernel. The truth of a set-up has no
//! other programs in it: with them, round trips of microseconds take milliseconds, and the limit is no longer the one that
//! was drawn.
//!
//! Programs that keep a processor busy do not get it: they would keep the kernel from moving their packets.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Words in front of a program that is to have precedence. None where the kernel does not grant it.
pub fn words() -> Vec<String> {
    static GRANTED: OnceLock<bool> = OnceLock::new();
    let words = ["chrt", "--rr", "1"];
    let granted = *GRANTED.get_or_init(|| run(&[&words[..], &["true"]].concat()));
    let used = if granted { &words[..] } else { &[] };
    used.iter().map(|word| (*word).to_owned()).collect()
}

/// Gives it to this thread, if the kernel grants it.
pub fn take() {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    run(&["chrt", "--rr", "--pid", "2", &thread]);
}

fn run(words: &[&str]) -> bool {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
