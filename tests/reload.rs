//! SIGHUP on the real server: listeners come and go, storage that does not answer holds nothing up, and refusals stay on
//! record.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions, blocks};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, free_port};

/// How long an orderly end may take on a machine that is busy with other tests.
const END_LIMIT: Duration = Duration::from_secs(20);

const VOLUME: &str = "[[volume]]\nname = \"m\"\nbackend = \"mem\"\nsize = \"1M\"\n";

/// A server with a file that can be edited.
struct Scene {
    server: Server,
    file: PathBuf,
    state: PathBuf,
    _scratch: Scratch,
}

impl Scene {
    fn start(name: &str, text: &str) -> Self {
        let scratch = Scratch::new(name);
        let (file, state) = (scratch.join("served.toml"), scratch.join("state"));
        std::fs::write(&file, text).unwrap();
        let server = ServerBuilder::new()
            .argument("--config")
            .argument(&file.display().to_string())
            .argument("--state-dir")
            .argument(&state.display().to_string())
            .start()
            .unwrap();
        Self {
            server,
            file,
            state,
            _scratch: scratch,
        }
    }

    /// Reads the file again, and waits until the log says this. The log names the steps of a change when it begins; their
    /// effect is there when it names them with "SIGHUP:" before.
    #[track_caller]
    fn reload(&self, text: &str, told: &str) {
        std::fs::write(&self.file, text).unwrap();
        self.server.reload().unwrap();
        self.server.wait_for_log(told);
    }

    fn audit(&self) -> String {
        std::fs::read_to_string(self.state.join("audit.log")).unwrap_or_default()
    }
}

fn listen(iscsi: &[SocketAddr], nvme: &[SocketAddr]) -> String {
    let quoted = |all: &[SocketAddr]| {
        let all: Vec<String> = all.iter().map(|it| format!("\"{it}\"")).collect();
        all.join(", ")
    };
    format!(
        "[listen]\niscsi = [{}]\nnvme = [{}]\n{VOLUME}",
        quoted(iscsi),
        quoted(nvme)
    )
}

fn read(initiator: &mut Initiator) {
    let answer = initiator
        .command(0, &cdb::read_16(0, 1), Data::In(512))
        .unwrap();
    assert!(answer.is_good(), "{answer:?}");
}

#[test]
fn listeners_come_and_go_and_sessions_that_came_by_them_go_on() {
    let (first, second) = (free_port(), free_port());
    let (nvme, other_nvme) = (free_port(), free_port());
    let scene = Scene::start("listeners", &listen(&[first], &[nvme]));
    let mut old = Initiator::ready(first, &Login::numbered(1)).unwrap();
    TcpStream::connect(second).unwrap_err();

    scene.reload(
        &listen(&[first, second], &[nvme, other_nvme]),
        &format!("SIGHUP: add listener {second} (iscsi)"),
    );
    scene
        .server
        .wait_for_log(&format!("SIGHUP: add listener {other_nvme} (nvme)"));
    let mut new = Initiator::ready(second, &Login::numbered(2)).unwrap();
    let mut host = Host::connect(other_nvme, &HostOptions::numbered(1)).unwrap();
    read(&mut old);
    read(&mut new);
    host.read(blocks(0, 1)).unwrap().expect_success();

    scene.reload(
        &listen(&[first], &[nvme]),
        &format!("SIGHUP: remove listener {second} (iscsi)"),
    );
    scene
        .server
        .wait_for_log(&format!("SIGHUP: remove listener {other_nvme} (nvme)"));
    for address in [second, other_nvme] {
        TcpStream::connect(address).unwrap_err();
        // Others can have the address.
        drop(TcpListener::bind(address).unwrap());
    }
    // Those that came by them stay.
    read(&mut new);
    read(&mut old);
    host.read(blocks(0, 1)).unwrap().expect_success();
    Initiator::ready(first, &Login::numbered(3)).unwrap();
    let end = scene.server.stop(END_LIMIT).unwrap();
    assert!(end.success());
}

#[test]
fn an_address_that_cannot_be_had_leaves_everything_as_it_is() {
    let (first, second) = (free_port(), free_port());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = (taken.local_addr().unwrap(), taken);
    let scene = Scene::start("taken-address", &listen(&[first], &[]));
    scene.reload(
        &listen(&[first, second, taken.0], &[]),
        &format!("cannot listen on {}", taken.0),
    );
    TcpStream::connect(second).unwrap_err();
    Initiator::ready(first, &Login::numbered(1)).unwrap();
    // A public address is as closed to open targets as at start.
    let public: SocketAddr = format!("0.0.0.0:{}", second.port()).parse().unwrap();
    scene.reload(&listen(&[first, public], &[]), "allow-open");
    TcpStream::connect(second).unwrap_err();
    let audit = scene.audit();
    assert!(audit.contains("cannot listen on"), "{audit}");
    assert!(audit.contains("read the configuration file"), "{audit}");
}

#[test]
fn the_last_listener_of_a_session_in_use_stays() {
    let (first, second) = (free_port(), free_port());
    let scene = Scene::start("last-listener", &listen(&[first], &[]));
    let mut old = Initiator::ready(first, &Login::numbered(1)).unwrap();
    let moved =
        listen(&[second], &[]).replace(&format!("\"{second}\""), &format!("\"{second},tag=2\""));
    scene.reload(&moved, "the last listener of portal group 1");
    read(&mut old);
    TcpStream::connect(second).unwrap_err();
}

#[test]
fn storage_that_does_not_answer_keeps_the_server_from_nothing() {
    // A server that accepts connections and never says anything.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let first = free_port();
    let text = format!(
        "sandbox-ports = [{}]\n{}",
        address.port(),
        listen(&[first], &[])
    );
    let scene = Scene::start("silent-storage", &text);
    let with_remote = format!(
        "{text}[[volume]]\nname = \"r\"\nbackend = \"iscsi\"\nurl = \"iscsi://{address}/iqn.2026-11.x:t/0\"\n"
    );
    std::fs::write(&scene.file, with_remote).unwrap();
    scene.server.reload().unwrap();
    // Somebody waits for it now.
    let _hanging = silent.accept().unwrap();
    scene.server.reload().unwrap();
    let mut session = Initiator::ready(first, &Login::numbered(1)).unwrap();
    read(&mut session);
    drop(session);
    let (end, log) = scene.server.stop_and_read(END_LIMIT).unwrap();
    assert!(end.success(), "{log}");
    assert!(log.contains("stopped"), "{log}");
}

#[test]
fn requests_to_read_the_file_again_are_not_lost() {
    let first = free_port();
    let with_limit = |limit: u32| format!("{}max-iops = {limit}\n", listen(&[first], &[]));
    let scene = Scene::start("many-reloads", &with_limit(1));
    for limit in 2..40 {
        std::fs::write(&scene.file, with_limit(limit)).unwrap();
        scene.server.reload().unwrap();
    }
    // However many of them were read together, the last text is what is served in the end.
    let last = VOLUME.replace("\"m\"", "\"last\"");
    let last = format!("{}{last}", with_limit(40));
    scene.reload(&last, "SIGHUP: add volume last");
}
