//! The flush at the end of a copy, while the server is away.

use std::sync::Mutex;

use longshore_reactor::storage::Delegated;
use longshore_volume::{
    Attempt, Characteristics, Ended, Execution, Geometry, Identity, Io, Lba, Operation, Request,
};

use super::volumes::{memory, settings, side};
use super::*;

/// A volume of a server that is away when it is to flush: the flush waits until it is to hurry.
struct Away {
    volume: Arc<dyn Volume>,
    waiting: Arc<Mutex<Option<Delegated>>>,
}

impl Volume for Away {
    fn identity(&self) -> &Identity {
        self.volume.identity()
    }
    fn geometry(&self) -> Geometry {
        self.volume.geometry()
    }
    fn characteristics(&self) -> Characteristics {
        self.volume.characteristics()
    }
    fn try_read(&self, lba: Lba, into: &mut [u8]) -> Attempt {
        self.volume.try_read(lba, into)
    }
    fn try_write(&self, lba: Lba, from: &[u8], fua: bool) -> Attempt {
        self.volume.try_write(lba, from, fua)
    }
    fn execute(self: Arc<Self>, request: Request, io: Io) -> Execution {
        if request.operation != Operation::Flush {
            return self.volume.clone().execute(request, io);
        }
        Execution::running(async move {
            let (delegated, completion) = io.delegate().await;
            *self.waiting.lock().unwrap() = Some(delegated);
            assert!(completion.await.result.is_err());
            Ended {
                result: Err(VolumeError::Removed),
                buffer: None,
            }
        })
    }
    fn refresh_geometry(&self) -> Result<Geometry, VolumeError> {
        self.volume.refresh_geometry()
    }
    fn hurry(&self, _within: Duration) {
        // Dropping a delegated operation completes it as cancelled.
        *self.waiting.lock().unwrap() = None;
    }
}

/// The connections to a server that is away while a flush waits.
struct Cut(Arc<Mutex<Option<Delegated>>>);

impl Link for Cut {
    fn losses(&self) -> u64 {
        0
    }

    fn outage(&self) -> Option<Outage> {
        let is_waiting = self.0.lock().unwrap().is_some();
        is_waiting.then_some(Outage {
            lasted: Duration::ZERO,
            gives_up_in: None,
        })
    }
}

/// Interrupts once it is told that the connection is lost.
#[derive(Default)]
struct Impatient {
    interrupt: Interrupt,
    warnings: Vec<String>,
}

impl Observer for Impatient {
    fn progress(&mut self, progress: &Progress) {
        if matches!(progress.trouble, Some(Trouble::ConnectionLost { .. })) {
            self.interrupt.raise(2);
        }
    }
    fn warn(&mut self, text: &str) {
        self.warnings.push(text.to_owned());
    }
}

#[test]
fn the_last_flush_tells_of_a_lost_connection_and_can_be_interrupted() {
    let source = memory(64 * K, 512, &garbage(64 * K, 3));
    let waiting = Arc::default();
    let away: Arc<dyn Volume> = Arc::new(Away {
        volume: memory(64 * K, 512, &[]),
        waiting: Arc::clone(&waiting),
    });
    let mut observer = Impatient::default();
    let interrupt = observer.interrupt.clone();
    let settings = settings();
    let done = Transfer::new(Assignment {
        source: &side(&source, "source"),
        destination: &Side {
            link: Some(Box::new(Cut(waiting))),
            ..side(&away, "destination")
        },
        size: 64 * K,
        start: 0,
        zeros_known: true,
        changes: None,
        journal: None,
        settings: &settings,
    })
    .unwrap()
    .run(&mut Monitor::new(&mut observer, interrupt));
    assert!(matches!(
        done.result,
        Err(CopyError::Interrupted { signal: 2 })
    ));
    assert_eq!(done.done, 0, "nothing is known to be flushed");
    assert!(observer.warnings[0].contains("the last flush has failed"));
}
