//! Secure channel concatenation: keys for TLS that are made of an authentication (DH-HMAC-CHAP).

use std::sync::{Arc, Mutex};

use longshore_nvme::auth::{Hash, Secret};
use longshore_tests::relay::{Passed, Relay};

use super::*;

fn secret(seed: u8) -> Secret {
    Secret::generate(Some(Hash::Sha256), &mut |bytes| bytes.fill(seed))
}

/// A server whose rule for [`HOST`] has secrets, and no key for TLS.
struct Making {
    server: Server,
    scratch: Scratch,
    file: PathBuf,
}

impl Making {
    fn start(keys: &str) -> Self {
        let scratch = Scratch::new("concatenation");
        let file = scratch.join("served.toml");
        for (name, seed) in [("host", 1), ("controller", 2)] {
            let path = scratch.join(name);
            fs::write(&path, format!("{}\n", *secret(seed).to_text())).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        fs::write(&file, rules(keys)).unwrap();
        let server = ServerBuilder::new()
            .nvme_at(free_port(), "")
            .argument("--config")
            .argument(&file.display().to_string())
            .argument("--state-dir")
            .argument(&scratch.join("state").display().to_string());
        Self {
            server: server.start().unwrap(),
            scratch,
            file,
        }
    }

    fn attach(&self, options: &Options) -> Result<Attachment, Error> {
        attach(&url_at(self.server.nvme(0)), options)
    }
}

fn rules(keys: &str) -> String {
    format!(
        "[[volume]]\nname = \"disk0\"\nbackend = \"mem\"\nsize = \"64M\"\n\n\
         [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n\n\
         [[subsystem.access]]\nhosts = [\"{HOST}\"]\ndhchap-secret-file = \"host\"\n\
         dhchap-ctrl-secret-file = \"controller\"\n{keys}\n"
    )
}

fn knowing(own: u8, controller: Option<u8>) -> Options {
    let mut options = options(HOST, None);
    options.nvme.secret = Some(secret(own));
    options.nvme.controller_secret = controller.map(secret);
    options
}

fn reason(error: &Error) -> &str {
    match error {
        Error::Authentication { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

#[test]
fn a_host_has_a_key_made_where_the_server_requires_one() {
    for groups in [
        "",
        "dhchap-groups = [\"ffdhe2048\"]\ndhchap-hashes = [\"sha384\"]",
    ] {
        let making = Making::start(&format!("dhchap-secure-channel = \"required\"\n{groups}"));
        for controller in [None, Some(2)] {
            let mut attachment = making.attach(&knowing(1, controller)).unwrap();
            use_it(&mut attachment, 3).unwrap();
        }
        let error = making.attach(&knowing(3, None)).map(drop).unwrap_err();
        assert!(reason(&error).contains("authentication failed"), "{error}");
        let error = making.attach(&knowing(1, Some(3))).map(drop).unwrap_err();
        assert!(reason(&error).contains("has not proved"), "{error}");
    }
}

#[test]
fn a_host_has_a_key_made_where_it_may() {
    let making = Making::start("");
    let mut options = knowing(1, Some(2));
    // Without.
    use_it(&mut making.attach(&options).unwrap(), 1).unwrap();
    options.nvme.concatenate = true;
    let mut attachment = making.attach(&options).unwrap();
    use_it(&mut attachment, 2).unwrap();
    // Another attachment has another key, and both go on.
    let mut second = making.attach(&options).unwrap();
    use_it(&mut second, 3).unwrap();
    use_it(&mut attachment, 4).unwrap();
    let making = Making::start("dhchap-secure-channel = \"none\"");
    let error = making.attach(&options).map(drop).unwrap_err();
    assert!(reason(&error).contains("mismatch"), "{error}");
    let making = Making::start("dhchap-groups = [\"null\"]");
    let error = making.attach(&options).map(drop).unwrap_err();
    assert!(
        reason(&error).contains("no usable Diffie-Hellman group"),
        "{error}"
    );
}

#[test]
fn a_relay_sees_no_data_of_a_host_with_a_key_that_was_made() {
    let making = Making::start("dhchap-secure-channel = \"required\"");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let relay = Relay::start(making.server.nvme(0), move |_| {
        let record = Arc::clone(&record);
        Box::new(move |bytes: &[u8]| {
            record.lock().unwrap().extend_from_slice(bytes);
            Passed::On(bytes.to_vec())
        })
    })
    .unwrap();
    let mut attachment = attach(&url_at(relay.address()), &knowing(1, Some(2))).unwrap();
    let text = b"the only copy of somebody's data";
    let data = text.repeat(512 / text.len() * 8);
    write(&mut attachment.queues[0], 0, &data).unwrap();
    assert!(read(&mut attachment.queues[0], 0, data.len()).unwrap() == data);
    let seen = seen.lock().unwrap();
    let has = |bytes: &[u8]| seen.windows(bytes.len()).any(|window| window == bytes);
    assert!(seen.len() > 2 * data.len() && has(b"NVMe1G01 "));
    // Of the volume nothing: Identify came over TLS, too.
    assert!(!has(text) && !has(b"Longshore"));
}

#[test]
fn a_new_secret_ends_the_keys_that_were_made_of_the_old_one() {
    let making = Making::start("dhchap-secure-channel = \"required\"");
    let mut old = making.attach(&knowing(1, None)).unwrap();
    fs::write(
        making.scratch.join("host"),
        format!("{}\n", *secret(4).to_text()),
    )
    .unwrap();
    fs::write(&making.file, rules("dhchap-secure-channel = \"required\"")).unwrap();
    making.server.reload().unwrap();
    let until = Instant::now() + LIMIT;
    while making.attach(&knowing(4, None)).is_err() {
        assert!(Instant::now() < until, "{}", making.server.log());
    }
    making.attach(&knowing(1, None)).map(drop).unwrap_err();
    use_it(&mut old, 5).unwrap();
}
