//! The guest that is a target. Its script is `tests/peers/guest/targets.sh`: it sets LIO and nvmet
//! up, then asks the host again and again for the next thing to do. Tests, which are another
//! process, hand such things in by a socket: one line of request, one line of answer.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use longshore_tests::server::free_port;

use crate::kernel::last_lines;
use crate::vm::guest::{Guest, Machine, Message};
use crate::vm::image;
use crate::vm::kernel::{Flavour, Kernel};
use crate::vm::system::System;
use crate::workspace;

/// MiB. Volumes of the guest are in its memory, and take what is written to them.
const MEMORY: u32 = 1024;

/// Booting and setting up, on a machine that is busy.
const START_LIMIT: Duration = Duration::from_secs(90);

/// One command of a test, and where its answer goes.
type Request = (String, Sender<String>);

pub struct TargetGuest {
    /// The open target's two portals, the one with CHAP and the one with mutual CHAP.
    pub lio: [SocketAddr; 4],
    /// The two ports of nvmet.
    pub nvmet: [SocketAddr; 2],
    /// Address that takes commands, one a line.
    pub control: SocketAddr,
    /// How long it took.
    pub started_in: Duration,
    requests: Sender<Request>,
    worker: Option<JoinHandle<String>>,
}

impl TargetGuest {
    /// Boots it and waits until its targets are up. It ends itself after `limit`.
    pub fn start(limit: Duration) -> Result<Self> {
        let begin = Instant::now();
        let kernel = Kernel::prepare(Flavour::Cloud)?;
        let base = image::base(&kernel, System::Host, &[&image::TARGET], &[])?;
        let lio: [SocketAddr; 4] = std::array::from_fn(|_| free_port());
        let nvmet: [SocketAddr; 2] = std::array::from_fn(|_| free_port());
        let watchdog = limit + START_LIMIT;
        let mut settings = vec![("WATCHDOG".to_owned(), watchdog.as_secs().to_string())];
        let names = ["LIO0", "LIO1", "LIO_CHAP", "LIO_MUTUAL", "NVMET0", "NVMET1"];
        let addresses = lio.iter().chain(&nvmet);
        for (name, address) in names.iter().zip(addresses.clone()) {
            settings.push((format!("PORT_{name}"), address.port().to_string()));
        }
        let script = workspace::root().join("tests/peers/guest/targets.sh");
        let job = image::job(&script, &settings)?;
        let ports: Vec<u16> = addresses.map(SocketAddr::port).collect();
        let folder = workspace::work_folder("peers/guest")?;
        let machine = Machine {
            kernel: &kernel,
            image: [&base, &job],
            forwards: &ports,
            drives: &[],
            memory: MEMORY,
            processors: 1,
            kernel_words: "",
            watchdog,
            folder: &folder,
        };
        let mut guest = machine.start()?;
        wait_until_up(&mut guest)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("take commands")?;
        let control = listener.local_addr()?;
        let (requests, received) = channel();
        let accepting = requests.clone();
        // Lives as long as the process, which is one run of the suite.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let requests = accepting.clone();
                std::thread::spawn(move || take_commands(&stream, &requests));
            }
        });
        let worker = std::thread::spawn(move || serve(guest, &received));
        Ok(Self {
            lio,
            nvmet,
            control,
            started_in: begin.elapsed(),
            requests,
            worker: Some(worker),
        })
    }

    /// Has the guest end, and gives what is on its console.
    pub fn stop(mut self) -> Result<String> {
        self.end()
    }

    fn end(&mut self) -> Result<String> {
        let Some(worker) = self.worker.take() else {
            return Ok(String::new());
        };
        let (answer, _) = channel();
        // A guest that has died takes nothing any more; its console says why.
        let _ = self.requests.send((END.to_owned(), answer));
        worker
            .join()
            .map_err(|_| anyhow!("the thread of the guest panicked"))
    }
}

impl Drop for TargetGuest {
    fn drop(&mut self) {
        // Where something else has failed, that is the error to report.
        let _ = self.end();
    }
}

/// The command that ends the guest's script.
const END: &str = "end";

fn wait_until_up(guest: &mut Guest) -> Result<()> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        match guest.next(Some(deadline)) {
            Some(Message::Ask(request)) if request == "next" => return Ok(()),
            Some(Message::Log(text)) => println!("guest: {text}"),
            Some(Message::Verdict(Err(why)) | Message::Ended(why)) => {
                let console = guest.console();
                bail!("the guest's targets: {why}\n{}", last_lines(&console, 100));
            }
            Some(other) => bail!("the guest says {other:?} before its targets are up"),
            None => bail!(
                "the guest's targets were not up within {START_LIMIT:?}\n{}",
                last_lines(&guest.console(), 100)
            ),
        }
    }
}

/// Passes requests to the guest, which is waiting for the next one, until it ends.
fn serve(mut guest: Guest, requests: &Receiver<Request>) -> String {
    loop {
        let (request, answer) = match requests.recv_timeout(Duration::from_millis(200)) {
            Ok(request) => request,
            Err(RecvTimeoutError::Timeout) => match guest.next(Some(Instant::now())) {
                None => continue,
                Some(message) => {
                    println!("guest: {message:?}");
                    return guest.console();
                }
            },
            Err(RecvTimeoutError::Disconnected) => return guest.console(),
        };
        let is_end = request == END;
        if guest.answer(&Ok(request)).is_err() {
            return guest.console();
        }
        loop {
            match guest.next(None) {
                Some(Message::Ask(ask)) if ask == "next" => break,
                Some(Message::Ask(ask)) => {
                    let result = ask.strip_prefix("result ").unwrap_or(&ask).to_owned();
                    // A test that gave up does not want it any more.
                    let _ = answer.send(result);
                    if guest.answer(&Ok(String::new())).is_err() {
                        return guest.console();
                    }
                }
                Some(Message::Verdict(Ok(()))) if is_end => return guest.console(),
                Some(Message::Log(text)) => println!("guest: {text}"),
                Some(message) => {
                    println!("guest: {message:?}");
                    return guest.console();
                }
                None => return guest.console(),
            }
        }
    }
}

/// Serves one connection of a test.
fn take_commands(stream: &TcpStream, requests: &Sender<Request>) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let (answer, result) = channel();
        if requests.send((line, answer)).is_err() {
            return;
        }
        let result = result
            .recv()
            .unwrap_or_else(|_| "failed the guest is gone".to_owned());
        let mut stream = stream;
        if stream.write_all(format!("{result}\n").as_bytes()).is_err() {
            return;
        }
    }
}
