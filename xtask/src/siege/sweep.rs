//! Looks at every block: through the server, and in the file behind it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use longshore_initiator::Buffer;
use longshore_initiator::attach::{Attachment, attach};
use longshore_initiator::extent::{BlockCount, Extent, Lba};
use longshore_initiator::operation::{Completion, Data, Operation};
use longshore_initiator::options::Options;
use longshore_initiator::url::Url;

use super::ledger::{Ledger, Run, Wrong};
use super::stamp::BLOCK;

/// Bytes of a block, as a number of another width.
const BLOCK_BYTES: u64 = 4096;

/// Blocks of a read.
const PIECE: u64 = 16;

/// Within this time a server that nobody disturbs any more has to serve everything.
const LIMIT: Duration = Duration::from_secs(60);

/// What a look at all blocks found.
#[derive(Debug, Default)]
pub struct Swept {
    pub blocks: u64,
    pub wrong: Vec<Wrong>,
}

impl Swept {
    pub fn join(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.wrong.extend(other.wrong);
    }
}

/// Reads everything from the server, over a connection of its own. What it finds decides what was in doubt.
pub fn served(url: &Url, options: &Options, ledgers: &[Mutex<Ledger>]) -> Result<Swept> {
    let deadline = Instant::now() + LIMIT;
    let mut attachment = loop {
        match attach(url, options) {
            Ok(attachment) => break attachment,
            Err(error) if Instant::now() > deadline => {
                return Err(error).context("attach to look at all blocks");
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let mut swept = Swept::default();
    for ledger in ledgers {
        let range = lock(ledger).range();
        for run in pieces(range) {
            let data = read(&mut attachment, run, deadline)?;
            let mut ledger = lock(ledger);
            for (block, bytes) in run.blocks().zip(data.data.bytes().chunks_exact(BLOCK)) {
                swept.blocks += 1;
                swept.wrong.extend(ledger.read(block, bytes).err());
            }
        }
    }
    for queue in &mut attachment.queues {
        queue.close();
        // The server may be faster.
        let _ = queue.send();
    }
    attachment.control.close();
    Ok(swept)
}

/// Reads everything from the file of a server that does not run.
pub fn stored(path: &Path, ledgers: &[Mutex<Ledger>]) -> Result<Swept> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let mut bytes = vec![0; BLOCK];
    let mut swept = Swept::default();
    for ledger in ledgers {
        // Hosts go on beside this: what they hear now was said before.
        let ledger = lock(ledger);
        for block in ledger.range().blocks() {
            file.read_exact_at(&mut bytes, block * BLOCK_BYTES)
                .with_context(|| format!("read block {block} of {}", path.display()))?;
            swept.blocks += 1;
            swept.wrong.extend(ledger.check(block, &bytes).err());
        }
    }
    Ok(swept)
}

fn pieces(range: Run) -> Vec<Run> {
    let starts = (0..range.count).step_by(usize::try_from(PIECE).expect("small"));
    let piece = |offset| Run {
        first: range.first + offset,
        count: PIECE.min(range.count - offset),
    };
    starts.map(piece).collect()
}

fn read(attachment: &mut Attachment, run: Run, deadline: Instant) -> Result<Completion> {
    let blocks_of = BLOCK_BYTES / u64::from(attachment.info.block_size);
    let extent = Extent {
        lba: Lba(run.first * blocks_of),
        blocks: BlockCount(run.count * blocks_of),
    };
    let length = usize::try_from(run.count * BLOCK_BYTES).expect("a piece is short");
    let data = Data::buffer(Buffer::allocate(length));
    let queue = &mut attachment.queues[0];
    if let Err(rejected) = queue.submit(Operation::Read { extent }, data, 0) {
        bail!("read {run:?}: {:?}", rejected.refusal);
    }
    let mut completions = Vec::new();
    while completions.is_empty() {
        queue.send().context("look at all blocks")?;
        while queue
            .receive(&mut completions)
            .context("look at all blocks")?
            .more
        {}
        if Instant::now() > deadline {
            bail!("reading all blocks takes longer than {LIMIT:?}");
        }
        if completions.is_empty() {
            std::thread::yield_now();
        }
    }
    let completion = completions.remove(0);
    match completion.result {
        Ok(_) => Ok(completion),
        Err(failure) => bail!("read {run:?}: {failure}"),
    }
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().expect("no panics")
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use longshore_tests::scratch::Scratch;

    use super::super::ledger::WrongKind;
    use super::super::stamp::{self, Content};
    use super::*;

    const BLOCKS: u64 = 64;

    /// A file with two hosts' acknowledged writes, three to each block, and its ledgers.
    fn scene(scratch: &Scratch) -> (std::path::PathBuf, File, [Mutex<Ledger>; 2]) {
        let path = scratch.join("disk.img");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true);
        let file = options.open(&path).unwrap();
        let ledgers = [0, BLOCKS / 2].map(|first| {
            let count = BLOCKS / 2;
            let mut ledger = Ledger::new(5, Run { first, count });
            for block in ledger.range().blocks() {
                for _ in 0..3 {
                    let number = ledger.next_number();
                    let run = Run {
                        first: block,
                        count: 1,
                    };
                    ledger.begin(run, Content::Write(number));
                    put(&file, block, number);
                    ledger.acknowledge(run, Content::Write(number));
                }
            }
            Mutex::new(ledger)
        });
        (path, file, ledgers)
    }

    fn put(file: &File, block: u64, number: u64) {
        let mut bytes = vec![0; BLOCK];
        stamp::fill(5, block, number, &mut bytes);
        file.write_all_at(&bytes, block * BLOCK_BYTES).unwrap();
    }

    #[test]
    fn what_is_planted_behind_the_server_is_found_and_nothing_else() {
        let scratch = Scratch::new("siege-sweep");
        let (path, file, ledgers) = scene(&scratch);
        let sound = stored(&path, &ledgers).unwrap();
        assert_eq!((sound.blocks, sound.wrong.len()), (BLOCKS, 0));
        // A write that was acknowledged and never done: its predecessor is there.
        put(&file, 3, 11);
        // A bit.
        file.write_all_at(&[0], 9 * BLOCK_BYTES + 4095).unwrap();
        file.write_all_at(&[1], 9 * BLOCK_BYTES + 4094).unwrap();
        // A block at the place of another.
        let mut bytes = vec![0; BLOCK];
        stamp::fill(5, 40, 25, &mut bytes);
        file.write_all_at(&bytes, 41 * BLOCK_BYTES).unwrap();
        let found = stored(&path, &ledgers).unwrap().wrong;
        let found: Vec<_> = found.iter().map(|it| (it.block, it.kind)).collect();
        let (lost, changed) = (WrongKind::Lost, WrongKind::Changed);
        assert_eq!(found, [(3, lost), (9, changed), (41, changed)]);
    }

    #[test]
    fn pieces_cover_a_range() {
        let range = Run {
            first: 5,
            count: 40,
        };
        let blocks: Vec<u64> = pieces(range).into_iter().flat_map(Run::blocks).collect();
        assert!(blocks.into_iter().eq(range.blocks()));
    }
}
