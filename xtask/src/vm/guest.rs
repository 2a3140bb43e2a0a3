//! One running guest: QEMU, its console in a file, and the line on which host and guest talk.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::kernel::Kernel;
use crate::command::find_program;

/// Options that make the guest's kernel start fast and die loudly.
///
/// On a busy machine a guest stands still at times. Its kernel may then find that no timer interrupt comes, and panic, or
/// measure a wrong frequency of the processor's counter: its clock has been seen to go eight times too fast. So it does
/// not look for the interrupt, and goes by a clock of a frequency that it knows.
const KERNEL_LINE: &str = "console=ttyS0 panic=-1 net.ifnames=0 mitigations=off audit=0 \
    nosoftlockup cryptomgr.notests rcupdate.rcu_expedited=1 tsc=reliable clocksource=acpi_pm no_timer_check \
    random.trust_cpu=on quiet";

/// How long QEMU may live after the guest's own watchdog should have ended it.
const GRACE: Duration = Duration::from_secs(20);

/// What a guest is made of.
#[derive(Debug)]
pub struct Machine<'a> {
    pub kernel: &'a Kernel,
    /// The archive all jobs share, and the job's own.
    pub image: [&'a [u8]; 2],
    /// Ports of the host's loopback that lead to the same ports of the guest.
    pub forwards: &'a [u16],
    /// Values of QEMU's `-drive`, in the order of the guest's `/dev/vda`, `/dev/vdb`, …
    pub drives: &'a [String],
    /// Memory of the guest in MiB.
    pub memory: u32,
    /// Each is a thread of QEMU. A host has at most one I/O queue of a kind for each.
    pub processors: u32,
    /// Further words for the kernel's command line.
    pub kernel_words: &'a str,
    /// The job's own watchdog, which prints what hangs.
    pub watchdog: Duration,
    /// Where image and console go.
    pub folder: &'a Path,
}

/// A line from the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// For the reader of the run.
    Log(String),
    /// A check by name, and why it failed if it did.
    Check(String, Result<(), String>),
    /// Wants something done, and an answer.
    Ask(String),
    /// A generation of the ledger is durable, as far as the guest was told.
    Acknowledged(u64),
    /// The job is over.
    Verdict(Result<(), String>),
    /// The machine is gone, or the limit has passed, without a verdict.
    Ended(String),
}

/// A running machine. Killed when this value goes away.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    to_guest: ChildStdin,
    lines: Receiver<String>,
    deadline: Instant,
    console: PathBuf,
}

impl Machine<'_> {
    pub fn start(&self) -> Result<Guest> {
        let image = self.image.concat();
        check_fit(image.len(), self.memory)?;
        let initrd = self.folder.join("initrd");
        std::fs::write(&initrd, image)?;
        let console = self.folder.join("console");
        let qemu = find_program("qemu-system-x86_64").context("qemu-system-x86 is missing")?;
        let mut command = Command::new(qemu);
        command.args([
            "-nodefaults",
            "-no-user-config",
            "-machine",
            "pc,usb=off,vmport=off",
        ]);
        command.args(["-accel", "tcg,thread=multi"]);
        command.args(["-cpu", self.kernel.processor]);
        command.args(["-smp", &self.processors.to_string()]);
        command.args(["-m", &self.memory.to_string()]);
        command.args([
            "-display",
            "none",
            "-vga",
            "none",
            "-monitor",
            "none",
            "-no-reboot",
        ]);
        command
            .arg("-kernel")
            .arg(&self.kernel.vmlinux)
            .arg("-initrd")
            .arg(&initrd);
        command.args(["-append", &format!("{KERNEL_LINE} {}", self.kernel_words)]);
        command.args(["-serial", &format!("file:{}", console.display())]);
        command.args([
            "-chardev",
            "stdio,id=line,signal=off",
            "-serial",
            "chardev:line",
        ]);
        let forwards: String = self
            .forwards
            .iter()
            .map(|port| format!(",hostfwd=tcp:127.0.0.1:{port}-:{port}"))
            .collect();
        command.args(["-netdev", &format!("user,id=n0,ipv6=off{forwards}")]);
        command.args(["-device", "virtio-net-pci,netdev=n0,romfile="]);
        for drive in self.drives {
            command.args(["-drive", drive]);
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = command.spawn().context("start QEMU")?;
        let to_guest = child.stdin.take().expect("stdin is a pipe");
        let from_guest = child.stdout.take().expect("stdout is a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(from_guest)
                .split(b'\n')
                .map_while(|line| line.ok())
            {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let deadline = Instant::now() + self.watchdog + GRACE;
        Ok(Guest {
            child,
            to_guest,
            lines,
            deadline,
            console,
        })
    }
}

/// Refuses an image that a guest with `memory` MiB cannot unpack: its kernel would panic for want of an `init`.
///
/// Its files may take half of what the kernel and the packed image leave.
fn check_fit(image: usize, memory: u32) -> Result<()> {
    const KERNEL: u32 = 100;
    let limit = memory.saturating_sub(KERNEL) / 3;
    let image = image >> 20;
    if image > limit as usize {
        bail!(
            "the image has {image} MiB; a guest with {memory} MiB of memory unpacks at most {limit} MiB"
        );
    }
    Ok(())
}

impl Guest {
    /// Waits for the next message, at most until `limit` if there is one (then None).
    pub fn next(&mut self, limit: Option<Instant>) -> Option<Message> {
        loop {
            let until = limit.map_or(self.deadline, |limit| limit.min(self.deadline));
            let wait = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(wait) {
                Ok(line) => {
                    if let Some(message) = parse(&line) {
                        return Some(message);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Some(Message::Ended(
                        "the machine ended without a verdict".to_owned(),
                    ));
                }
                Err(RecvTimeoutError::Timeout) if until == self.deadline => {
                    return Some(Message::Ended("the machine hung".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => return None,
            }
        }
    }

    /// Answers the guest's last question.
    pub fn answer(&mut self, answer: &Result<String>) -> Result<()> {
        let line = match answer {
            Ok(text) => format!("ok {text}\n"),
            Err(error) => format!("failed {error:#}\n").replace('\n', " ") + "\n",
        };
        self.to_guest
            .write_all(line.as_bytes())
            .context("write to the guest")?;
        self.to_guest.flush().context("write to the guest")
    }

    /// Cuts the power: nothing in the guest or in QEMU gets to know of it. Returns the last generation that was
    /// acknowledged, if that had not been read yet.
    pub fn kill(mut self) -> Result<Option<u64>> {
        self.child.kill().context("kill QEMU")?;
        self.child.wait().context("wait for QEMU")?;
        let unread = self.lines.iter().filter_map(|line| match parse(&line) {
            Some(Message::Acknowledged(generation)) => Some(generation),
            _ => None,
        });
        Ok(unread.max())
    }

    /// Everything on the console so far.
    pub fn console(&self) -> String {
        let bytes = std::fs::read(&self.console).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It is gone already, unless its run was broken off.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads one line; None for what is no message, such as noise before the line is set up.
fn parse(line: &str) -> Option<Message> {
    let (kind, rest) = line.split_once(' ')?;
    let outcome = |text: &str| match text.split_once(' ').unwrap_or((text, "")) {
        ("passed", _) => Some(Ok(())),
        ("failed", why) => Some(Err(why.to_owned())),
        _ => None,
    };
    match kind {
        "log" => Some(Message::Log(rest.to_owned())),
        "ask" => Some(Message::Ask(rest.to_owned())),
        "acknowledged" => Some(Message::Acknowledged(rest.parse().ok()?)),
        "verdict" => Some(Message::Verdict(outcome(rest)?)),
        "check" => {
            let (name, result) = rest.split_once(' ')?;
            Some(Message::Check(name.to_owned(), outcome(result)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_cannot_be_unpacked_is_refused() {
        let limit = 222;
        assert!(check_fit(limit << 20, 768).is_ok());
        let error = check_fit((limit + 1) << 20, 768).unwrap_err().to_string();
        assert!(error.contains("223 MiB"), "{error}");
        assert!(check_fit(1 << 20, 64).is_err());
    }

    #[test]
    fn messages_are_told_from_noise() {
        assert_eq!(
            parse("ask resize disk0 2G"),
            Some(Message::Ask("resize disk0 2G".to_owned()))
        );
        assert_eq!(
            parse("check mount passed"),
            Some(Message::Check("mount".to_owned(), Ok(())))
        );
        assert_eq!(
            parse("check mount failed status 1: no"),
            Some(Message::Check(
                "mount".to_owned(),
                Err("status 1: no".to_owned())
            ))
        );
        assert_eq!(parse("verdict passed"), Some(Message::Verdict(Ok(()))));
        assert_eq!(parse("[    1.0] log"), None);
        assert_eq!(parse(""), None);
    }
}
