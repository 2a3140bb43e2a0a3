//! Pages of a file on their way to a socket, by reference: no byte passes through the memory of this process.
//!
//! A kernel pipe holds references to pages of the page cache ([`PagePipe::take`]), which a socket then takes over
//! ([`PagePipe::send`]). What is in the pipe is there: neither a file that is cut short, nor a hole punched into it, nor
//! memory pressure takes it away, so the length in a header is always right. *What the pages hold* is another matter:
//! a write to the file goes into the same pages, and shows in data that is not received yet.
//!
//! Splicing from a file sleeps when a page is not there, flags or no flags. So [`PagePipe::take`] asks cachestat(2)
//! first (Linux 6.5), and reads the last byte with RWF_NOWAIT: pages that are just being read count as cached. A page
//! that is evicted in between makes one call wait for one read, which is rare and harmless.
//!
//! A splice to a broken connection raises SIGPIPE, which Rust's start-up code ignores; there is no flag against it.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::ReadWriteFlags;
use rustix::pipe::{PipeFlags, SpliceFlags};

use crate::socket::retry;

/// Pages that a pipe holds unless told otherwise (`PIPE_DEF_BUFFERS`).
pub const DEFAULT_PAGES: usize = 16;

/// A pipe for pages. See the module documentation.
#[derive(Debug)]
pub struct PagePipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// Pages it has room for.
    pages: usize,
    /// Bytes that were put in and not yet sent.
    held: usize,
    /// System calls made for it but for those that send, since [`PagePipe::calls_made`] was asked.
    calls: u64,
}

impl PagePipe {
    /// A pipe with room for so many pages.
    ///
    /// # Errors
    /// EMFILE; EPERM where an ordinary user has reached `fs.pipe-user-pages-soft` or asks for more than
    /// `fs.pipe-max-size`.
    pub fn new(pages: usize) -> io::Result<Self> {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let page_size = rustix::param::page_size();
        let mut room = rustix::pipe::fcntl_getpipe_size(&writer)? / page_size;
        let mut calls = 2;
        if room < pages {
            calls += 1;
            room = rustix::pipe::fcntl_setpipe_size(&writer, pages * page_size)? / page_size;
        }
        Ok(Self {
            reader,
            writer,
            pages: room,
            held: 0,
            calls,
        })
    }

    /// System calls since the last time: those that made it, and those of [`Self::take`], not those of [`Self::send`].
    pub fn calls_made(&mut self) -> u64 {
        mem::take(&mut self.calls)
    }

    /// Pages it has room for.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Bytes that were put in and not yet sent.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Takes references to the pages behind `length` bytes at `offset` of `file`, if they are all in the page cache.
    ///
    /// `false`: they are not, or cannot be taken from this file. What is in the pipe then is good for nothing: drop it
    /// unless [`Self::held`] is 0.
    pub fn take(&mut self, file: &File, offset: u64, length: usize) -> io::Result<bool> {
        assert_eq!(self.held, 0, "a pipe holds the pages of one read at a time");
        if pages_spanned(offset, length) > self.pages
            || !is_cached(file, offset, length, &mut self.calls)?
        {
            return Ok(false);
        }
        let mut position = offset;
        while self.held < length {
            let left = length - self.held;
            self.calls += 1;
            let moved = retry(|| {
                let to = self.writer.as_fd();
                let flags = SpliceFlags::NONBLOCK;
                rustix::pipe::splice(file, Some(&mut position), to, None, left, flags)
            })?;
            if moved == 0 {
                return Ok(false);
            }
            self.held += moved;
        }
        Ok(true)
    }

    /// Hands `length` bytes of what it holds to `socket`, as far as that takes them now. `more`: further bytes follow at
    /// once.
    ///
    /// # Errors
    /// As those of a send; `WouldBlock` when the socket has no room.
    pub fn send(&mut self, socket: BorrowedFd<'_>, length: usize, more: bool) -> io::Result<usize> {
        let mut flags = SpliceFlags::NONBLOCK;
        flags.set(SpliceFlags::MORE, more);
        let wanted = length.min(self.held);
        let sent = retry(|| rustix::pipe::splice(&self.reader, None, socket, None, wanted, flags))?;
        if sent == 0 && length > 0 {
            // Not even a byte is left of what was promised.
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.held -= sent;
        Ok(sent)
    }
}

/// Pages that `length` bytes at `offset` lie in.
fn pages_spanned(offset: u64, length: usize) -> usize {
    let page_size = rustix::param::page_size();
    let within = usize::try_from(offset % page_size as u64).expect("less than a page");
    (within + length).div_ceil(page_size)
}

/// `struct cachestat_range` of linux/mman.h.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// `struct cachestat` of linux/mman.h.
#[repr(C)]
#[derive(Default)]
struct CacheStatus {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The same number on all architectures but alpha.
const SYS_CACHESTAT: libc::c_long = 451;

/// Whether all pages behind `length` bytes at `offset` are in the page cache, and nothing suggests that they are still
/// being read. Adds its system calls to `calls`.
fn is_cached(file: &File, offset: u64, length: usize, calls: &mut u64) -> io::Result<bool> {
    let Some(last) = length.checked_sub(1) else {
        return Ok(true);
    };
    let range = Range {
        offset,
        length: length as u64,
    };
    let mut status = CacheStatus::default();
    *calls += 1;
    // SAFETY: the call reads a `cachestat_range` and writes a `cachestat`, both of which are ours, laid out as C does
    // and alive across the call; it keeps neither. The descriptor is borrowed.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut status,
            0,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if status.cached < pages_spanned(offset, length) as u64 {
        return Ok(false);
    }
    let mut byte = [0];
    let buffers = &mut [IoSliceMut::new(&mut byte)];
    *calls += 1;
    match rustix::io::preadv2(file, buffers, offset + last as u64, ReadWriteFlags::NOWAIT) {
        Ok(read) => Ok(read == 1),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
        // Files that live in memory know no NOWAIT; nothing of them is still being read.
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Pipes of one thread that are not in use, and a bound on those that are.
#[derive(Debug)]
pub struct PagePipes {
    small: Shelf,
    large: Shelf,
}

#[derive(Debug)]
struct Shelf {
    /// Pages that each of its pipes has room for.
    pages: usize,
    idle: Vec<PagePipe>,
    /// How many more may be made.
    left: usize,
    /// How many there are beyond the bound, which came from other threads.
    surplus: usize,
}

impl Shelf {
    fn new(pages: usize, most: usize) -> Self {
        Self {
            pages,
            idle: Vec::with_capacity(most),
            left: most,
            surplus: 0,
        }
    }

    fn take(&mut self) -> Option<PagePipe> {
        if let Some(pipe) = self.idle.pop() {
            return Some(pipe);
        }
        self.left = self.left.checked_sub(1)?;
        match PagePipe::new(self.pages) {
            Ok(pipe) => Some(pipe),
            Err(error) => {
                // Limits of descriptors or of pages in pipes: what there is has to do.
                tracing::debug!(%error, pages = self.pages, "cannot create another pipe for splice");
                self.left = 0;
                None
            }
        }
    }
}

/// Pipes of the default size, of which one thread has so many at most.
const SMALL_MOST: usize = 64;
/// Pipes for a MiB, which is what `fs.pipe-max-size` allows ordinary users.
const LARGE_PAGES: usize = 256;
/// With the small ones of as many threads, `fs.pipe-user-pages-soft` (16,384) has room for three.
const LARGE_MOST: usize = 16;

impl Default for PagePipes {
    fn default() -> Self {
        Self {
            small: Shelf::new(DEFAULT_PAGES, SMALL_MOST),
            large: Shelf::new(LARGE_PAGES, LARGE_MOST),
        }
    }
}

impl PagePipes {
    /// An empty pipe with room for `length` bytes at `offset` of a file; `None` when there is none left, or none that
    /// large.
    pub fn take(&mut self, offset: u64, length: usize) -> Option<PagePipe> {
        let pages = pages_spanned(offset, length);
        if pages <= self.small.pages {
            self.small.take().or_else(|| self.large.take())
        } else if pages <= self.large.pages {
            self.large.take()
        } else {
            None
        }
    }

    /// Gives a pipe back. One that still holds something is closed, which lets go of the pages.
    pub fn put(&mut self, pipe: PagePipe) {
        let shelf = self.shelf(&pipe);
        if shelf.surplus > 0 {
            shelf.surplus -= 1;
        } else if pipe.held == 0 {
            shelf.idle.push(pipe);
        } else {
            shelf.left += 1;
        }
    }

    /// A pipe that is in use goes to another thread: another may be made in its place.
    pub fn send_away(&mut self, pipe: &PagePipe) {
        let shelf = self.shelf(pipe);
        if shelf.surplus > 0 {
            shelf.surplus -= 1;
        } else {
            shelf.left += 1;
        }
    }

    /// A pipe that is in use comes from another thread, and counts here from now on.
    pub fn take_in(&mut self, pipe: &PagePipe) {
        let shelf = self.shelf(pipe);
        match shelf.left.checked_sub(1) {
            Some(left) => shelf.left = left,
            None => shelf.surplus += 1,
        }
    }

    fn shelf(&mut self, pipe: &PagePipe) -> &mut Shelf {
        if pipe.pages < self.large.pages {
            &mut self.small
        } else {
            &mut self.large
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::socket;
    use crate::socket::tests::connection;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn pattern(length: usize) -> Vec<u8> {
        (0..length)
            .map(|i| u8::try_from(i % 251).unwrap())
            .collect()
    }

    /// Sends all that is held while the peer receives; what came.
    fn send_all(pipe: &mut PagePipe) -> Vec<u8> {
        let (client, server) = connection();
        let wanted = pipe.held();
        let mut received = Vec::new();
        let mut buffer = vec![0; 1 << 20];
        while received.len() < wanted {
            if pipe.held() > 0 {
                match pipe.send(client.as_fd(), pipe.held(), false) {
                    Ok(_) => {}
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
            match socket::receive(&server, &mut [IoSliceMut::new(&mut buffer)]) {
                Ok(n) => received.extend_from_slice(&buffer[..n]),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        received
    }

    #[test]
    fn cached_bytes_reach_the_peer_from_any_offset() {
        let bytes = pattern(2 << 20);
        let file = file_of(&bytes);
        for (offset, length) in [(0, 1 << 20), (512, 65_536), (4096, 512), (5000, 1_000_000)] {
            let mut pipes = PagePipes::default();
            let mut pipe = pipes.take(offset, length).unwrap();
            if !pipe.take(&file, offset, length).unwrap_or(false) {
                eprintln!("SKIPPED: cachestat(2) is not to be had here");
                return;
            }
            // Two calls made it and one may have made it large; two looked at the file, one at least took its pages.
            let made = if length > 65_536 { 3 } else { 2 };
            assert!(pipe.calls_made() >= made + 3);
            assert_eq!(pipe.calls_made(), 0);
            let from = usize::try_from(offset).unwrap();
            assert!(
                send_all(&mut pipe) == bytes[from..from + length],
                "{offset}"
            );
        }
    }

    #[test]
    fn what_was_taken_survives_the_end_of_the_file() {
        let bytes = pattern(256 << 10);
        let file = file_of(&bytes);
        let mut pipe = PagePipe::new(64).unwrap();
        if !pipe.take(&file, 0, bytes.len()).unwrap_or(false) {
            eprintln!("SKIPPED: cachestat(2) is not to be had here");
            return;
        }
        file.set_len(0).unwrap();
        assert_eq!(send_all(&mut pipe).len(), bytes.len());
    }

    #[test]
    fn what_is_not_all_there_is_not_taken() {
        let file = file_of(&pattern(10_000));
        let mut pipe = PagePipe::new(16).unwrap();
        assert!(!pipe.take(&file, 0, 20_000).unwrap_or(false));
        let sparse = tempfile::tempfile().unwrap();
        sparse.set_len(1 << 20).unwrap();
        sparse.write_all_at(&[1; 4096], 0).unwrap();
        let mut pipe = PagePipe::new(16).unwrap();
        assert!(!pipe.take(&sparse, 0, 8192).unwrap_or(false));
        // More pages than it has room for.
        assert!(
            !pipe
                .take(&file_of(&pattern(1 << 20)), 1, 65_536)
                .unwrap_or(false)
        );
    }

    #[test]
    fn pipes_are_bounded_and_come_back() {
        let mut pipes = PagePipes::default();
        let mut taken = Vec::new();
        while let Some(pipe) = pipes.take(0, 1 << 20) {
            taken.push(pipe);
        }
        assert!(taken.len() <= LARGE_MOST);
        assert!(pipes.take(0, (1 << 20) + 1).is_none());
        assert!(pipes.take(0, 65_536).is_some());
        let count = taken.len();
        for pipe in taken.drain(..) {
            pipes.put(pipe);
        }
        while let Some(pipe) = pipes.take(0, 1 << 20) {
            taken.push(pipe);
        }
        assert_eq!(taken.len(), count);
    }

    #[test]
    fn pipes_that_go_to_another_thread_count_there() {
        let take_all = |pipes: &mut PagePipes| -> Vec<PagePipe> {
            std::iter::from_fn(|| pipes.take(0, 1 << 20)).collect()
        };
        let (mut from, mut to) = (PagePipes::default(), PagePipes::default());
        let (mut here, there) = (take_all(&mut from), take_all(&mut to));
        let count = here.len();
        if count < LARGE_MOST || there.len() < LARGE_MOST {
            eprintln!("SKIPPED: this user may not have so many pages in pipes");
            return;
        }
        for pipe in &here {
            from.send_away(pipe);
            to.take_in(pipe);
        }
        // There are too many there; the ones that come back first are not kept.
        here.into_iter().for_each(|pipe| to.put(pipe));
        assert!(to.large.idle.is_empty() && to.large.left == 0);
        there.into_iter().for_each(|pipe| to.put(pipe));
        assert_eq!(take_all(&mut to).len(), count);
        here = take_all(&mut from);
        assert_eq!(here.len(), count);
    }
}
