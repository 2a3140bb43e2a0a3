//! What words in braces stand for, in configurations of the server and in arguments of clients.

use std::net::SocketAddr;
use std::path::Path;

use crate::vm::relay::Relay;

/// The host as QEMU's network shows it to the guest.
const GUESTS_HOST: &str = "10.0.2.2";

/// Words in braces, and what stands in their place.
#[derive(Debug, Clone, Default)]
pub struct Places(Vec<(String, String)>);

impl Places {
    /// `{folder}`: where the job's files are.
    pub fn new(folder: &Path) -> Self {
        let folder = folder.display().to_string();
        Self(vec![("{folder}".to_owned(), folder)])
    }

    /// `{NAME0}` and so on, for listeners of the server; `{ADVERTISE0}` and so on for the relays in front of them, as the
    /// guest sees them.
    pub fn add_listeners(
        &mut self,
        name: &str,
        advertise: &str,
        listeners: &[SocketAddr],
        relays: &[Relay],
    ) {
        for (index, (listener, relay)) in listeners.iter().zip(relays).enumerate() {
            self.add(name, index, listener.to_string());
            self.add(advertise, index, in_guest(relay));
        }
    }

    /// `{forward0}` and so on, for ports of this machine's loopback that lead into the guest.
    pub fn add_forwards(&mut self, ports: &[u16]) {
        for (index, port) in ports.iter().enumerate() {
            self.add("forward", index, format!("127.0.0.1:{port}"));
        }
    }

    /// The text with these words filled in.
    pub fn fill_in(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (word, place) in &self.0 {
            text = text.replace(word, place);
        }
        text
    }

    fn add(&mut self, name: &str, index: usize, place: String) {
        self.0.push((format!("{{{name}{index}}}"), place));
    }
}

/// A relay's address as the guest sees it.
pub fn in_guest(relay: &Relay) -> String {
    format!("{GUESTS_HOST}:{}", relay.address().port())
}
