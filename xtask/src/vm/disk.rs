//! A disk with a volatile write cache, for a guest whose power is cut.
//!
//! The page cache of the host outlives QEMU, so a plain image file would keep writes that a real
//! disk loses. This disk is an NBD server inside `xtask`: a write without FUA stays in its cache
//! until the next flush, and [`VolatileDisk::cut_power`] keeps a random half of the cached
//! sectors, which also reorders and tears. What was flushed or written with FUA is on the medium.
//!
//! Of NBD (`doc/proto.md` of the NBD project) it speaks what QEMU asks for: fixed newstyle
//! handshake with `NBD_OPT_GO`, simple replies, READ, WRITE, FLUSH, FUA, TRIM as a hint, DISC.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result};
use longshore_tests::random::Random;

/// What a disk writes as a whole, and a cut tears no further.
const SECTOR: usize = 512;

const MAGIC: u64 = 0x4e42_444d_4147_4943; // "NBDMAGIC"
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054; // "IHAVEOPT"
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

const FLAG_FIXED_NEWSTYLE: u16 = 1;
const OPTION_ABORT: u32 = 2;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_UNSUPPORTED: u32 = 0x8000_0001;
const INFO_EXPORT: u16 = 0;

/// Has flags, sends flushes, FUA and trims.
const TRANSMISSION_FLAGS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 5;
const COMMAND_FLAG_FUA: u16 = 1;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const INVALID: u32 = 22;

/// A disk that loses its cache when the power is cut.
#[derive(Debug)]
pub struct VolatileDisk {
    socket: PathBuf,
    medium: Arc<Mutex<Medium>>,
}

#[derive(Debug)]
struct Medium {
    durable: Vec<u8>,
    /// Sectors written and not flushed, by number.
    cache: BTreeMap<usize, [u8; SECTOR]>,
    statistics: Statistics,
    honest: bool,
}

/// What a disk was asked to do.
#[derive(Debug, Clone, Copy, Default)]
pub struct Statistics {
    /// Number of writes without FUA.
    pub writes: u64,
    pub fua_writes: u64,
    pub flushes: u64,
}

impl VolatileDisk {
    /// A disk of zeros; QEMU finds it at the socket of this name in `folder`.
    ///
    /// A disk that is not `honest` acknowledges flushes and FUA without obeying them, as a server
    /// does that promises what it does not keep: a check that finds nothing on such a disk proves
    /// nothing.
    pub fn start(folder: &Path, name: &str, size: usize, honest: bool) -> Result<Self> {
        let socket = folder.join(format!("{name}.socket"));
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)
            .with_context(|| format!("listen at {}", socket.display()))?;
        let medium = Arc::new(Mutex::new(Medium {
            durable: vec![0; size],
            cache: BTreeMap::new(),
            statistics: Statistics::default(),
            honest,
        }));
        let shared = Arc::clone(&medium);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // QEMU goes away without a word when it is killed.
                let _ = serve(stream, &shared);
            }
        });
        Ok(Self { socket, medium })
    }

    /// The value of QEMU's `-drive` for this disk.
    pub fn drive(&self) -> String {
        format!(
            "file=nbd:unix:{},if=virtio,format=raw,cache=none",
            self.socket.display()
        )
    }

    /// Loses what the cache holds, except sectors that by chance have made it to the medium.
    /// Gives the number of sectors lost and kept.
    pub fn cut_power(&self, random: &mut Random) -> (usize, usize) {
        let mut medium = self.lock();
        let (mut lost, mut kept) = (0, 0);
        for (sector, bytes) in std::mem::take(&mut medium.cache) {
            if random.below(2) == 0 {
                lost += 1;
            } else {
                kept += 1;
                medium.durable[sector * SECTOR..][..SECTOR].copy_from_slice(&bytes);
            }
        }
        (lost, kept)
    }

    /// Reads the medium alone, as after the power has come back.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.lock().durable[offset..offset + bytes.len()]);
    }

    /// What it was asked to do so far.
    pub fn statistics(&self) -> Statistics {
        self.lock().statistics
    }

    fn lock(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock().expect("the disk does not panic")
    }
}

impl Medium {
    fn covers(&self, offset: usize, length: usize) -> bool {
        offset.is_multiple_of(SECTOR)
            && length.is_multiple_of(SECTOR)
            && offset
                .checked_add(length)
                .is_some_and(|end| end <= self.durable.len())
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.durable[offset..offset + bytes.len()]);
        let first = offset / SECTOR;
        for (sector, cached) in self.cache.range(first..first + bytes.len() / SECTOR) {
            bytes[(sector - first) * SECTOR..][..SECTOR].copy_from_slice(cached);
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8], fua: bool) {
        let first = offset / SECTOR;
        for (sector, data) in (first..).zip(bytes.chunks_exact(SECTOR)) {
            if fua && self.honest {
                self.cache.remove(&sector);
                self.durable[sector * SECTOR..][..SECTOR].copy_from_slice(data);
            } else {
                self.cache
                    .insert(sector, data.try_into().expect("chunks are sectors"));
            }
        }
        if fua {
            self.statistics.fua_writes += 1;
        } else {
            self.statistics.writes += 1;
        }
    }

    fn flush(&mut self) {
        self.statistics.flushes += 1;
        if !self.honest {
            return;
        }
        for (sector, bytes) in std::mem::take(&mut self.cache) {
            self.durable[sector * SECTOR..][..SECTOR].copy_from_slice(&bytes);
        }
    }
}

fn serve(mut stream: UnixStream, medium: &Mutex<Medium>) -> io::Result<()> {
    let size = medium
        .lock()
        .expect("the disk does not panic")
        .durable
        .len();
    if !handshake(&mut stream, u64::try_from(size).map_err(io::Error::other)?)? {
        return Ok(());
    }
    loop {
        let magic = u32::from_be_bytes(take(&mut stream)?);
        if magic != REQUEST_MAGIC {
            return Err(io::Error::other(format!("request magic {magic:#x}")));
        }
        let flags = u16::from_be_bytes(take(&mut stream)?);
        let kind = u16::from_be_bytes(take(&mut stream)?);
        let cookie: [u8; 8] = take(&mut stream)?;
        let offset = u64::from_be_bytes(take(&mut stream)?);
        let length = u32::from_be_bytes(take(&mut stream)?);
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let mut data = Vec::new();
        if kind == WRITE {
            data.resize(length, 0);
            stream.read_exact(&mut data)?;
        }
        let mut reply = Vec::new();
        let error = {
            let mut medium = medium.lock().expect("the disk does not panic");
            let covered = medium.covers(offset, length);
            match kind {
                READ if covered => {
                    reply.resize(length, 0);
                    medium.read(offset, &mut reply);
                    0
                }
                WRITE if covered => {
                    medium.write(offset, &data, flags & COMMAND_FLAG_FUA != 0);
                    0
                }
                FLUSH => {
                    medium.flush();
                    0
                }
                TRIM => 0,
                DISCONNECT => return Ok(()),
                _ => INVALID,
            }
        };
        stream.write_all(&REPLY_MAGIC.to_be_bytes())?;
        stream.write_all(&error.to_be_bytes())?;
        stream.write_all(&cookie)?;
        stream.write_all(&reply)?;
    }
}

/// Fixed newstyle handshake; false when the client only looked.
fn handshake(stream: &mut UnixStream, size: u64) -> io::Result<bool> {
    stream.write_all(&MAGIC.to_be_bytes())?;
    stream.write_all(&OPTION_MAGIC.to_be_bytes())?;
    stream.write_all(&FLAG_FIXED_NEWSTYLE.to_be_bytes())?;
    let _client_flags: [u8; 4] = take(stream)?;
    loop {
        if u64::from_be_bytes(take(stream)?) != OPTION_MAGIC {
            return Err(io::Error::other("not an option"));
        }
        let option = u32::from_be_bytes(take(stream)?);
        let length = u32::from_be_bytes(take(stream)?);
        let mut data = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        stream.read_exact(&mut data)?;
        match option {
            OPTION_GO => {
                let mut info = Vec::new();
                info.extend(INFO_EXPORT.to_be_bytes());
                info.extend(size.to_be_bytes());
                info.extend(TRANSMISSION_FLAGS.to_be_bytes());
                reply_to_option(stream, option, REPLY_INFO, &info)?;
                reply_to_option(stream, option, REPLY_ACK, &[])?;
                return Ok(true);
            }
            OPTION_ABORT => {
                reply_to_option(stream, option, REPLY_ACK, &[])?;
                return Ok(false);
            }
            _ => reply_to_option(stream, option, REPLY_UNSUPPORTED, &[])?,
        }
    }
}

fn reply_to_option(stream: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let length = u32::try_from(data.len()).map_err(io::Error::other)?;
    stream.write_all(&OPTION_REPLY_MAGIC.to_be_bytes())?;
    stream.write_all(&option.to_be_bytes())?;
    stream.write_all(&kind.to_be_bytes())?;
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(data)
}

fn take<const N: usize>(stream: &mut UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unflushed_sectors_are_lost_and_flushed_ones_are_not() {
        let mut medium = Medium {
            durable: vec![0; 64 * SECTOR],
            cache: BTreeMap::new(),
            statistics: Statistics::default(),
            honest: true,
        };
        medium.write(0, &[1; 16 * SECTOR], false);
        medium.flush();
        medium.write(16 * SECTOR, &[2; 16 * SECTOR], true);
        medium.write(32 * SECTOR, &[3; 32 * SECTOR], false);
        let mut seen = vec![0; 64 * SECTOR];
        medium.read(0, &mut seen);
        assert_eq!((seen[0], seen[16 * SECTOR], seen[63 * SECTOR]), (1, 2, 3));
        let disk = VolatileDisk {
            socket: PathBuf::new(),
            medium: Arc::new(Mutex::new(medium)),
        };
        let (lost, kept) = disk.cut_power(&mut Random::new(1));
        assert_eq!(lost + kept, 32);
        assert!(lost > 0 && kept > 0);
        disk.read(0, &mut seen);
        assert!(seen[..16 * SECTOR].iter().all(|&byte| byte == 1));
        assert!(seen[16 * SECTOR..32 * SECTOR].iter().all(|&byte| byte == 2));
        let third = seen[32 * SECTOR..]
            .iter()
            .filter(|&&byte| byte == 3)
            .count();
        assert_eq!(third, kept * SECTOR);
    }

    #[test]
    fn a_later_write_with_fua_beats_an_earlier_one_in_the_cache() {
        let mut medium = Medium {
            durable: vec![0; SECTOR],
            cache: BTreeMap::new(),
            statistics: Statistics::default(),
            honest: true,
        };
        medium.write(0, &[1; SECTOR], false);
        medium.write(0, &[2; SECTOR], true);
        medium.flush();
        assert_eq!(medium.durable[0], 2);
    }
}
