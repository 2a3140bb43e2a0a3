//! Flush of all namespaces (NVMe base 2.0 §7.1), and reads that want the medium itself (FUA).

use longshore_block::command::DataLocation;
use longshore_block::extent::Extent;
use longshore_block::operation::Operation;

use crate::io::step::{CommandEvent, IoOutcome, Procedure, Step, StepContext};

/// Flush with NSID FFFFFFFFh: one namespace after the other. The first failure ends it, so success
/// means all of them.
#[derive(Debug)]
pub(crate) struct FlushAll {
    /// Places of those that can have something to flush.
    namespaces: Vec<usize>,
    next: usize,
}

impl FlushAll {
    pub(crate) fn new(namespaces: Vec<usize>) -> Self {
        Self {
            namespaces,
            next: 0,
        }
    }
}

impl Procedure for FlushAll {
    fn step(&mut self, _event: CommandEvent, _context: &mut StepContext<'_, '_>) -> Step {
        let Some(namespace) = self.namespaces.get(self.next) else {
            return Step::Complete(IoOutcome::SUCCESS);
        };
        self.next += 1;
        Step::Media {
            namespace: *namespace,
            operation: Operation::Flush,
            payload: DataLocation::None,
        }
    }

    fn uses(&self, namespace: usize) -> bool {
        self.namespaces.contains(&namespace)
    }

    fn renumber(&mut self, place: &dyn Fn(usize) -> usize) {
        for namespace in &mut self.namespaces {
            *namespace = place(*namespace);
        }
    }
}

/// A command that reads with FUA: what the volatile cache holds must reach the medium before it is
/// read (NVM command set 1.0 §3.2.4, the FUA bit).
#[derive(Debug)]
pub(crate) struct FlushFirst<P> {
    procedure: P,
    flushed: bool,
}

impl<P> FlushFirst<P> {
    pub(crate) fn new(procedure: P) -> Self {
        Self {
            procedure,
            flushed: false,
        }
    }
}

impl<P: Procedure> Procedure for FlushFirst<P> {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        if self.flushed {
            return self.procedure.step(event, context);
        }
        if event == CommandEvent::Start {
            return context.media(Operation::Flush, DataLocation::None);
        }
        self.flushed = true;
        self.procedure.step(CommandEvent::Start, context)
    }
}

/// A Read, as a procedure.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) extent: Extent,
    pub(crate) length: usize,
}

impl Procedure for Read {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        if event != CommandEvent::Start {
            return Step::Complete(IoOutcome::SUCCESS);
        }
        let Extent { lba, blocks } = self.extent;
        context.media(
            Operation::Read {
                extent: Extent { lba, blocks },
            },
            DataLocation::DataIn {
                length: self.length,
            },
        )
    }
}
