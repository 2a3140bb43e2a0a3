//! The NVMe/TCP initiator of the library against our own server, over real sockets.

mod attaching;
mod control;
mod discovery;
mod endings;
mod fake;
mod faults;
mod operations;

use std::time::{Duration, Instant};

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_initiator::attach::Attachment;
use longshore_initiator::error::{Error, Failure};
use longshore_initiator::operation::{Completion, Data, Operation, Reply};
use longshore_initiator::options::Options;
use longshore_initiator::queue::{AnyQueue, Refusal};
use longshore_initiator::url::Url;
use longshore_initiator::{attach, url};
use longshore_reactor::Buffer;
use longshore_tests::nvme::SUBSYSTEM;
use longshore_tests::server::{Server, ServerBuilder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long anything may take before a test fails.
const LIMIT: Duration = Duration::from_secs(20);

/// Namespace 1 is 64 MiB of memory, namespace 2 a terabyte of nothing in blocks of 4 KiB.
fn volumes() -> ServerBuilder {
    ServerBuilder::new()
        .volume("memory,backend=mem,size=64M")
        .volume("nothing,backend=null,size=1T,block-size=4096")
}

fn serve() -> Server {
    volumes().nvme().start().unwrap()
}

fn url_of(server: &Server, namespace: u32) -> Url {
    let portal = server.nvme(0);
    format!("nvme+tcp://{portal}/{SUBSYSTEM}/{namespace}")
        .parse()
        .unwrap()
}

fn portal_of(server: &Server) -> url::HostPort {
    url::HostPort::from(server.nvme(0))
}

fn attach_with(server: &Server, options: &Options) -> Attachment {
    attach::attach(&url_of(server, 1), options).unwrap()
}

fn attach_error(url: &Url, options: &Options) -> Error {
    attach::attach(url, options).unwrap_err()
}

fn negotiated<'a>(attachment: &'a Attachment, name: &str) -> &'a str {
    let found = attachment.negotiated.iter().find(|(key, _)| key == name);
    &found.unwrap_or_else(|| panic!("{name} is told")).1
}

fn extent(lba: u64, blocks: u64) -> Extent {
    Extent {
        lba: Lba(lba),
        blocks: BlockCount(blocks),
    }
}

fn buffer(bytes: &[u8]) -> Data {
    let mut buffer = Buffer::allocate(bytes.len());
    buffer.copy_from_slice(bytes);
    Data::buffer(buffer)
}

fn room(length: usize) -> Data {
    Data::buffer(Buffer::allocate(length))
}

/// Bytes that differ by place and seed.
fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|i| u8::try_from((i * 31 + seed * 7 + i / 251) % 256).unwrap())
        .collect()
}

/// Sends and receives until `wanted` operations have ended.
fn serve_queue(queue: &mut AnyQueue, wanted: usize) -> Vec<Completion> {
    let until = Instant::now() + LIMIT;
    let mut completions = Vec::new();
    loop {
        queue.send().unwrap();
        while queue.receive(&mut completions).unwrap().more {}
        if completions.len() >= wanted {
            return completions;
        }
        assert!(
            Instant::now() < until,
            "{} of {wanted} have ended",
            completions.len()
        );
        let interest = if queue.has_unsent() {
            PollFlags::IN | PollFlags::OUT
        } else {
            PollFlags::IN
        };
        let socket = queue.socket();
        let pause = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        poll(&mut [PollFd::new(&socket, interest)], Some(&pause)).unwrap();
    }
}

/// One operation, from submission to its end.
fn run(queue: &mut AnyQueue, operation: Operation, data: Data) -> (Result<Reply, Failure>, Data) {
    match queue.submit(operation, data, 1) {
        Ok(()) => {
            let completion = serve_queue(queue, 1).remove(0);
            (completion.result, completion.data)
        }
        Err(rejected) => match rejected.refusal {
            Refusal::Failed(failure) => (Err(failure), rejected.data),
            Refusal::Busy => panic!("the queue is empty"),
        },
    }
}

fn write(queue: &mut AnyQueue, lba: u64, bytes: &[u8]) {
    let operation = Operation::Write {
        extent: extent(lba, bytes.len() as u64 / 512),
        fua: false,
    };
    assert_eq!(run(queue, operation, buffer(bytes)).0, Ok(Reply::Done));
}

fn read(queue: &mut AnyQueue, lba: u64, length: usize) -> Vec<u8> {
    let operation = Operation::Read {
        extent: extent(lba, length as u64 / 512),
    };
    let (result, data) = run(queue, operation, room(length));
    assert_eq!(result, Ok(Reply::Done));
    data.bytes()[..length].to_vec()
}
