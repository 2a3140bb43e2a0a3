//! NVMe/TCP over TLS: our initiator, and programs of others, against the server.

mod concatenation;
mod keys;
mod plain;
mod programs;
mod traffic;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_initiator::attach::{Attachment, attach};
use longshore_initiator::error::{Error, Failure};
use longshore_initiator::operation::{Completion, Data, Operation, Reply};
use longshore_initiator::options::{Options, TlsOptions};
use longshore_initiator::queue::{AnyQueue, Refusal, Rejected};
use longshore_initiator::url::Url;
use longshore_nvme::nqn::Nqn;
use longshore_nvme::psk::{ConfiguredKey, PskHash};
use longshore_reactor::Buffer;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, free_port};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long anything may take before a test fails.
const LIMIT: Duration = Duration::from_secs(30);

const SUBSYSTEM: &str = "nqn.2026-11.com.example:disks";
const HOST: &str = "nqn.2026-11.com.example:web1";
const OTHER_HOST: &str = "nqn.2026-11.com.example:web2";

/// A key that nobody else has.
fn new_key(hash: PskHash) -> ConfiguredKey {
    ConfiguredKey::generate(Some(hash), &mut |bytes| {
        longshore_tests::random::Random::new(u64::from(std::process::id()) + u64::from(hash.id()))
            .fill(bytes);
    })
}

fn keep(path: &Path, key: &ConfiguredKey) {
    fs::write(path, format!("{}\n", *key.to_text())).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A server with one volume of 64 MiB for [`HOST`], which has a key, and other rules as the test says.
struct Scene {
    server: Server,
    key: ConfiguredKey,
    file: PathBuf,
    key_file: PathBuf,
    scratch: Scratch,
}

impl Scene {
    fn start(hash: PskHash, listener: &str, rules: &str) -> Self {
        let scratch = Scratch::new("tls");
        let key = new_key(hash);
        let key_file = scratch.join("web1.psk");
        keep(&key_file, &key);
        let file = scratch.join("served.toml");
        let text = configuration(&key_file, rules);
        fs::write(&file, text).unwrap();
        let server = ServerBuilder::new()
            .nvme_at(free_port(), listener)
            .argument("--config")
            .argument(&file.display().to_string())
            .argument("--state-dir")
            .argument(&scratch.join("state").display().to_string());
        Self {
            server: server.start().unwrap(),
            key,
            file,
            key_file,
            scratch,
        }
    }

    fn usual() -> Self {
        Self::start(PskHash::Sha256, "", "")
    }

    fn url(&self) -> Url {
        url_at(self.server.nvme(0))
    }

    fn options(&self) -> Options {
        options(HOST, Some(&self.key))
    }

    fn attach(&self) -> Attachment {
        attach(&self.url(), &self.options()).unwrap()
    }
}

fn configuration(key_file: &Path, rules: &str) -> String {
    format!(
        "[[volume]]\nname = \"disk0\"\nbackend = \"mem\"\nsize = \"64M\"\n\n\
         [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n\n\
         [[subsystem.access]]\nhosts = [\"{HOST}\"]\ntls-key-files = [\"{}\"]\n{rules}",
        key_file.display()
    )
}

fn url_at(address: std::net::SocketAddr) -> Url {
    format!("nvme+tcp://{address}/{SUBSYSTEM}/1")
        .parse()
        .unwrap()
}

fn options(host: &str, key: Option<&ConfiguredKey>) -> Options {
    let mut options = Options {
        host_nqn: Some(Nqn::new(host).unwrap()),
        ..Options::default()
    };
    options.nvme.tls = key.map(|key| TlsOptions::new(key.clone()));
    options
}

#[track_caller]
fn refusal(url: &Url, options: &Options) -> Error {
    match attach(url, options) {
        Ok(_) => panic!("attached"),
        Err(error) => error,
    }
}

/// Whether it failed in the TLS handshake.
fn is_no_tls(error: &Error) -> bool {
    matches!(error, Error::Authentication { reason, .. } if reason.starts_with("no TLS"))
}

/// Bytes that differ by place and seed.
fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|i| u8::try_from((i * 31 + seed * 7 + i / 251) % 256).unwrap())
        .collect()
}

fn extent(lba: u64, length: usize) -> Extent {
    Extent {
        lba: Lba(lba),
        blocks: BlockCount(length as u64 / 512),
    }
}

fn submit(queue: &mut AnyQueue, operation: Operation, data: Data, tag: u64) -> Result<(), Failure> {
    let refused = |rejected: Rejected| match rejected.refusal {
        Refusal::Failed(failure) => failure,
        Refusal::Busy => panic!("the queue is full"),
    };
    queue.submit(operation, data, tag).map_err(refused)
}

fn submit_write(queue: &mut AnyQueue, lba: u64, bytes: &[u8], tag: u64) -> Result<(), Failure> {
    let mut buffer = Buffer::allocate(bytes.len());
    buffer.copy_from_slice(bytes);
    let operation = Operation::Write {
        extent: extent(lba, bytes.len()),
        fua: false,
    };
    submit(queue, operation, Data::buffer(buffer), tag)
}

fn submit_read(queue: &mut AnyQueue, lba: u64, length: usize, tag: u64) -> Result<(), Failure> {
    let operation = Operation::Read {
        extent: extent(lba, length),
    };
    let room = Data::buffer(Buffer::allocate(length));
    submit(queue, operation, room, tag)
}

/// Sends and receives until `wanted` operations have ended.
fn serve(queue: &mut AnyQueue, wanted: usize) -> Result<Vec<Completion>, Failure> {
    let until = Instant::now() + LIMIT;
    let mut completions = Vec::new();
    while completions.len() < wanted {
        queue.send().map_err(Failure::ConnectionLost)?;
        while queue
            .receive(&mut completions)
            .map_err(Failure::ConnectionLost)?
            .more
        {}
        assert!(
            Instant::now() < until,
            "{} of {wanted} have ended",
            completions.len()
        );
        let mut interest = PollFlags::IN;
        interest.set(PollFlags::OUT, queue.has_unsent());
        let socket = queue.socket();
        let pause = Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        if completions.len() < wanted {
            poll(&mut [PollFd::new(&socket, interest)], Some(&pause)).unwrap();
        }
    }
    Ok(completions)
}

fn write(queue: &mut AnyQueue, lba: u64, bytes: &[u8]) -> Result<(), Failure> {
    submit_write(queue, lba, bytes, 1)?;
    let completion = serve(queue, 1)?.remove(0);
    completion
        .result
        .map(|reply| assert_eq!(reply, Reply::Done))
}

fn read(queue: &mut AnyQueue, lba: u64, length: usize) -> Result<Vec<u8>, Failure> {
    submit_read(queue, lba, length, 1)?;
    let completion = serve(queue, 1)?.remove(0);
    completion.result?;
    Ok(completion.data.bytes()[..length].to_vec())
}

/// Writes and reads one pattern.
fn use_it(attachment: &mut Attachment, seed: usize) -> Result<(), Failure> {
    let queue = &mut attachment.queues[0];
    let data = pattern(128 << 10, seed);
    write(queue, 8, &data)?;
    assert!(read(queue, 8, data.len())? == data);
    Ok(())
}
