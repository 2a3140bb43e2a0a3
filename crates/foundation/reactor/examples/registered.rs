//! What registered files and buffers of io_uring save: processor time of reads and writes on a ring like the
//! engine's, with and without them, interleaved.
//!
//! `cargo run --release -p longshore-reactor --example registered -- FILE [MILLISECONDS]`
//!
//! FILE is made with 256 MiB unless it is there, or is a block device, whose contents are then overwritten. A
//! line for each kind of access: nanoseconds of processor time for an operation, and in brackets what is left
//! with registered files, registered buffers, and both, in per cent.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};
use longshore_reactor::Buffer;

const DEPTH: usize = 32;
const FILE_BYTES: u64 = 256 << 20;
const ROUNDS: usize = 7;
const SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];

#[derive(Clone, Copy)]
struct Registered {
    file: bool,
    buffers: bool,
}

const VARIANTS: [Registered; 4] = [
    Registered {
        file: false,
        buffers: false,
    },
    Registered {
        file: true,
        buffers: false,
    },
    Registered {
        file: false,
        buffers: true,
    },
    Registered {
        file: true,
        buffers: true,
    },
];

/// One kind of access to one file, and what it needs. The ring goes first when dropped.
struct Access<'a> {
    ring: IoUring,
    buffers: Vec<Buffer>,
    file: &'a File,
    size: usize,
    writes: bool,
    random: u64,
}

impl<'a> Access<'a> {
    fn new(file: &'a File, size: usize, writes: bool) -> std::io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(256)?;
        let mut buffers: Vec<_> = (0..DEPTH).map(|_| Buffer::allocate(size)).collect();
        for buffer in &mut buffers {
            buffer.fill(7);
        }
        let vectors: Vec<_> = buffers
            .iter_mut()
            .map(|buffer| libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: size,
            })
            .collect();
        // SAFETY: the buffers live as long as the ring, and are touched by nobody meanwhile.
        unsafe { ring.submitter().register_buffers(&vectors)? };
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        Ok(Self {
            ring,
            buffers,
            file,
            size,
            writes,
            random: 1,
        })
    }

    fn entry(&mut self, slot: usize, registered: Registered) -> squeue::Entry {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let places = FILE_BYTES / self.size as u64;
        let offset = (self.random >> 20) % places * self.size as u64;
        let length = u32::try_from(self.size).expect("at most a MiB");
        let index = u16::try_from(slot).expect("at most DEPTH");
        let pointer = self.buffers[slot].as_mut_ptr();
        let fd = types::Fd(self.file.as_raw_fd());
        let fixed = types::Fixed(0);
        macro_rules! build {
            ($operation:ident, $($argument:expr),*) => {
                if registered.file {
                    opcode::$operation::new(fixed, $($argument),*).offset(offset).build()
                } else {
                    opcode::$operation::new(fd, $($argument),*).offset(offset).build()
                }
            };
        }
        match (self.writes, registered.buffers) {
            (false, false) => build!(Read, pointer, length),
            (false, true) => build!(ReadFixed, pointer, length, index),
            (true, false) => build!(Write, pointer.cast_const(), length),
            (true, true) => build!(WriteFixed, pointer.cast_const(), length, index),
        }
        .user_data(slot as u64)
    }

    /// Nanoseconds of processor time for an operation, the kernel's threads for this process included.
    fn round(&mut self, registered: Registered, length: Duration) -> std::io::Result<f64> {
        let (begun, cpu) = (Instant::now(), processor_time());
        let mut free: Vec<usize> = (0..DEPTH).collect();
        let mut done = 0_u64;
        loop {
            if begun.elapsed() < length {
                while let Some(slot) = free.pop() {
                    let entry = self.entry(slot, registered);
                    // SAFETY: buffer and file outlive the operation, which is waited for below.
                    unsafe { self.ring.submission().push(&entry) }.expect("room for DEPTH");
                }
            }
            if free.len() == DEPTH {
                break;
            }
            self.ring.submit_and_wait(1)?;
            for completion in self.ring.completion() {
                let moved = usize::try_from(completion.result());
                assert_eq!(moved.ok(), Some(self.size), "{completion:?}");
                free.push(usize::try_from(completion.user_data()).expect("a slot"));
                done += 1;
            }
        }
        let cpu = processor_time().saturating_sub(cpu);
        Ok(cpu.as_secs_f64() * 1e9 / f64::from(u32::try_from(done).expect("a round is short")))
    }
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).expect("positive"),
        u32::try_from(time.tv_nsec).expect("below a second"),
    )
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn prepare(path: &Path) -> std::io::Result<()> {
    if path
        .metadata()
        .is_ok_and(|it| it.file_type().is_block_device() || it.len() >= FILE_BYTES)
    {
        return Ok(());
    }
    let mut file = File::create(path)?;
    for _ in 0..FILE_BYTES >> 20 {
        file.write_all(&[7; 1 << 20])?;
    }
    file.sync_all()
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("a file");
    let length = arguments.next().map_or(50, |it| it.parse().expect("ms"));
    let length = Duration::from_millis(length);
    prepare(Path::new(&path))?;
    for (name, flags) in [("direct", libc::O_DIRECT), ("cached", 0)] {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags);
        let file = match options.open(&path) {
            Ok(file) => file,
            Err(error) => {
                println!("{name}: {error}");
                continue;
            }
        };
        if flags == 0 {
            std::io::copy(&mut &file, &mut std::io::sink())?;
        }
        for (size, writes) in SIZES
            .into_iter()
            .flat_map(|size| [(size, false), (size, true)])
        {
            let mut access = Access::new(&file, size, writes)?;
            let mut times = [const { Vec::new() }; VARIANTS.len()];
            for _ in 0..ROUNDS {
                for (times, variant) in times.iter_mut().zip(VARIANTS) {
                    times.push(access.round(variant, length)?);
                }
            }
            let [plain, file, buffers, both] = times.map(|mut times| median(&mut times));
            let direction = if writes { "write" } else { "read" };
            let kib = size >> 10;
            println!(
                "{name} {direction} {kib} KiB: {plain:.0} ns [{:.0} {:.0} {:.0}]",
                file / plain * 100.0,
                buffers / plain * 100.0,
                both / plain * 100.0
            );
        }
    }
    Ok(())
}
