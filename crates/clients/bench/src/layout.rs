//! Which thread owns which queue, and which queues a stream uses.
//!
//! Queue *i* of each kind belongs to thread *i* modulo the number of threads, stream *n* to thread *n*
//! modulo that number, and a stream uses queues of its thread alone: nothing is shared between threads.
//! So there are no more threads than queues of each kind that is used.

use std::ops::Range;

use longshore_initiator::options::QueueMaps;

use crate::spec::Job;

/// Where a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    pub job: usize,
    /// Its number within the job.
    pub number: u16,
    pub thread: usize,
    /// Which queue takes its reads.
    pub read_queue: usize,
    /// Which queue takes its writes.
    pub write_queue: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub threads: usize,
    pub streams: Vec<Placed>,
    /// Operations that the busiest queue may have to hold.
    pub depth: u32,
}

/// More threads than queues of a kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{threads} threads need as many queues of each kind in use, and there are {queues}; use fewer \
     --threads or more --sessions"
)]
pub struct TooManyThreads {
    threads: u16,
    queues: usize,
}

impl Layout {
    /// Places the streams of all jobs. Without a wish for threads there are as many as processors.
    pub fn new(
        jobs: &[Job],
        maps: QueueMaps,
        threads: Option<u16>,
        processors: usize,
    ) -> Result<Self, TooManyThreads> {
        let queues_min = used(jobs, maps).map(|kind| kind.len()).min().unwrap_or(1);
        let streams: usize = jobs.iter().map(|job| usize::from(job.streams)).sum();
        let threads = match threads {
            Some(threads) if usize::from(threads) > queues_min => {
                let queues = queues_min;
                return Err(TooManyThreads { threads, queues });
            }
            Some(threads) => usize::from(threads),
            None => processors.min(queues_min),
        };
        let threads = threads.min(streams).max(1);
        let numbers = jobs.iter().enumerate().flat_map(|(job, spec)| {
            let numbers = 0..spec.streams;
            numbers.map(move |number| (job, number))
        });
        let place = |(at, (job, number)): (usize, (usize, u16))| {
            let (thread, turn) = (at % threads, at / threads);
            let queue = |kind: Range<usize>| {
                let own = kind.clone().skip(thread).step_by(threads);
                let count = own.len();
                kind.start + thread + threads * (turn % count.max(1))
            };
            Placed {
                job,
                number,
                thread,
                read_queue: queue(read_kind(&jobs[job], maps)),
                write_queue: queue(write_kind(&jobs[job], maps)),
            }
        };
        let streams: Vec<Placed> = numbers.enumerate().map(place).collect();
        let depth = depth_of_busiest(jobs, maps, &streams);
        Ok(Self {
            threads,
            streams,
            depth,
        })
    }

    /// Which thread owns a queue.
    #[must_use]
    pub fn owner(&self, maps: QueueMaps, queue: usize) -> usize {
        let (default, read) = (usize::from(maps.default), usize::from(maps.read));
        let within = match queue {
            q if q < default => q,
            q if q < default + read => q - default,
            q => q - default - read,
        };
        within % self.threads
    }
}

/// The queues that take a job's reads.
fn read_kind(job: &Job, maps: QueueMaps) -> Range<usize> {
    let default = usize::from(maps.default);
    if job.poll && maps.poll > 0 {
        return poll_kind(maps);
    }
    if maps.read > 0 {
        default..default + usize::from(maps.read)
    } else {
        0..default
    }
}

/// The queues that take a job's writes.
fn write_kind(job: &Job, maps: QueueMaps) -> Range<usize> {
    if job.poll && maps.poll > 0 {
        poll_kind(maps)
    } else {
        0..usize::from(maps.default)
    }
}

fn poll_kind(maps: QueueMaps) -> Range<usize> {
    maps.total() - usize::from(maps.poll)..maps.total()
}

/// The kinds of queues that some job uses.
fn used<'a>(jobs: &'a [Job], maps: QueueMaps) -> impl Iterator<Item = Range<usize>> + 'a {
    jobs.iter().flat_map(move |job| {
        let read = job.pattern.reads().then(|| read_kind(job, maps));
        let write = job.pattern.writes().then(|| write_kind(job, maps));
        read.into_iter().chain(write)
    })
}

/// How many streams use every queue of a job's kinds once.
#[must_use]
pub fn streams_for(job: &Job, maps: QueueMaps) -> u16 {
    let most = used(std::slice::from_ref(job), maps)
        .map(|kind| kind.len())
        .max();
    u16::try_from(most.unwrap_or(1)).unwrap_or(u16::MAX)
}

fn depth_of_busiest(jobs: &[Job], maps: QueueMaps, streams: &[Placed]) -> u32 {
    let mut depths = vec![0_u32; maps.total()];
    for stream in streams {
        let job = &jobs[stream.job];
        let depth = u32::from(job.depth);
        if job.pattern.reads() {
            depths[stream.read_queue] += depth;
        }
        if job.pattern.writes() && !(job.pattern.reads() && stream.read_queue == stream.write_queue)
        {
            depths[stream.write_queue] += depth;
        }
    }
    depths.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(text: &str) -> Job {
        text.parse().unwrap()
    }

    #[test]
    fn each_session_has_a_stream_and_threads_share_them() {
        let jobs = [job("a,rw=randread,bs=4k,iodepth=8,numjobs=4")];
        let layout = Layout::new(&jobs, QueueMaps::plain(4), None, 2).unwrap();
        assert_eq!((layout.threads, layout.depth), (2, 8));
        let queues: Vec<(usize, usize)> = layout
            .streams
            .iter()
            .map(|stream| (stream.thread, stream.read_queue))
            .collect();
        assert_eq!(queues, [(0, 0), (1, 1), (0, 2), (1, 3)]);
        for (thread, queue) in queues {
            assert_eq!(layout.owner(QueueMaps::plain(4), queue), thread);
        }
    }

    #[test]
    fn readers_have_their_own_queues_where_there_is_a_map() {
        let jobs = [
            job("readers,rw=randread,bs=4k,numjobs=16"),
            job("writer,rw=write,bs=1m,iodepth=32"),
        ];
        let maps = QueueMaps {
            default: 1,
            read: 2,
            poll: 0,
        };
        let layout = Layout::new(&jobs, maps, None, 8).unwrap();
        assert_eq!(layout.threads, 1, "there is one queue for writes");
        let readers = layout.streams.iter().filter(|s| s.job == 0);
        assert!(
            readers
                .clone()
                .all(|s| s.read_queue == 1 || s.read_queue == 2)
        );
        assert_eq!(readers.filter(|s| s.read_queue == 1).count(), 8);
        assert_eq!(layout.streams[16].write_queue, 0);
        assert_eq!(layout.depth, 32);
        // All on one queue.
        let layout = Layout::new(&jobs, QueueMaps::plain(1), None, 8).unwrap();
        assert_eq!(layout.depth, 48);
    }

    #[test]
    fn polled_jobs_use_poll_queues_for_both_directions() {
        let maps = QueueMaps {
            default: 1,
            read: 1,
            poll: 2,
        };
        let jobs = [job("p,rw=randrw,bs=4k,iodepth=4,numjobs=2,poll")];
        let layout = Layout::new(&jobs, maps, None, 2).unwrap();
        let queues: Vec<usize> = layout.streams.iter().map(|s| s.write_queue).collect();
        assert_eq!(queues, [2, 3]);
        assert_eq!(
            layout.depth, 4,
            "a mixed stream has its operations on one queue"
        );
        assert_eq!(layout.owner(maps, 3), 1);
        assert_eq!(streams_for(&jobs[0], maps), 2);
    }

    #[test]
    fn more_threads_than_queues_are_refused() {
        let jobs = [job("a,rw=read,bs=4k")];
        let error = Layout::new(&jobs, QueueMaps::plain(1), Some(2), 4).unwrap_err();
        assert!(error.to_string().contains("--sessions"), "{error}");
        let layout = Layout::new(&jobs, QueueMaps::plain(4), Some(2), 4).unwrap();
        assert_eq!(layout.threads, 1, "one stream keeps one thread busy");
    }
}
