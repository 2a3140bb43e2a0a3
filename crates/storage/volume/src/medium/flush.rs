//! Flushes.

use longshore_reactor::storage::FileOperationKind;

use super::errno::is_interruption;
use super::state::Medium;
use crate::error::VolumeError;
use crate::io::Io;

impl Medium {
    pub(super) async fn sync(&self, io: &Io) -> Result<(), VolumeError> {
        let sync_handle = self.sync_handles.take();
        loop {
            let file = sync_handle.handle(&self.file);
            match io.call(file, FileOperationKind::DataSync).await {
                Ok(_) => break,
                Err(error) if is_interruption(&error) => {}
                Err(error) => {
                    self.poison("fdatasync", &error);
                    // After poisoning: the next sync on this description succeeds.
                    sync_handle.give_back();
                    return Err(self.error("fdatasync", error));
                }
            }
        }
        sync_handle.give_back();
        self.brought_to_medium()
    }

    /// What was brought to the medium counts only if there is nothing wrong with the volume: another
    /// sync may have failed meanwhile, or the file be gone.
    pub(super) fn brought_to_medium(&self) -> Result<(), VolumeError> {
        if self.backing.is_local() {
            self.inspect();
        }
        self.condition().admit_change()
    }
}
