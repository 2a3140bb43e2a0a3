//! Accounts that change, and what is told of secrets, which is nothing.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use longshore_iscsi::chap::{ChapAlgorithm, Secret, format_binary_value, parse_binary_value};
use longshore_tests::api::{ApiAddress, VerbResult};
use longshore_tests::initiator::Initiator;
use longshore_tests::pdu::{self, Pdu, opcode};
use longshore_tests::server::program;
use longshore_tests::skip::skip;
use serde_json::json;

use crate::rig::{Change, Hand, LIMIT, Rig, TARGET, scsi_read, scsi_write};

/// Logs in with CHAP, with default values for all that is negotiated. The status of a refusal.
fn log_in(rig: &Rig, number: u16, user: &str, secret: &str) -> Result<Initiator, u16> {
    let mut initiator = Initiator::connect(rig.iscsi).unwrap();
    let name = format!("iqn.2026-11.local.longshore:tests-{number}");
    let sha256 = ChapAlgorithm::Sha256;
    // Stays in the security stage (0), then goes on to the full feature phase (3).
    let (stay, on) = (0x00, 0x83);
    let named = [
        ("InitiatorName", &*name),
        ("SessionType", "Normal"),
        ("TargetName", TARGET),
        ("AuthMethod", "CHAP"),
    ];
    request(&mut initiator, number, stay, &named)?;
    let algorithm = sha256.number().to_string();
    let challenge = request(&mut initiator, number, stay, &[("CHAP_A", &algorithm)])?;
    let value = |wanted: &str| {
        let mut keys = challenge.iter();
        &*keys.find(|(key, _)| key == wanted).unwrap().1
    };
    let identifier = value("CHAP_I").parse().unwrap();
    let challenge = parse_binary_value(value("CHAP_C")).unwrap();
    let response = sha256.response(identifier, &Secret::new(secret), &challenge);
    let response = format_binary_value(&response);
    let proof = [("CHAP_N", user), ("CHAP_R", &response)];
    request(&mut initiator, number, on, &proof)?;
    Ok(initiator)
}

/// One step of the login: the keys of the answer, or the status of the refusal.
fn request(
    initiator: &mut Initiator,
    number: u16,
    stages: u8,
    keys: &[(&str, &str)],
) -> Result<Vec<(String, String)>, u16> {
    let [high, low] = number.to_be_bytes();
    let pdu = Pdu::new(opcode::LOGIN_REQUEST)
        .immediate()
        .set_byte(1, stages)
        .set_word(8, 0x8012_3456)
        .set_byte(12, high)
        .set_byte(13, low)
        .set_word(24, initiator.cmd_sn)
        .set_word(28, initiator.exp_stat_sn)
        .with_data(&pdu::text(keys));
    initiator.send(&pdu).unwrap();
    let response = initiator.receive().unwrap();
    assert_eq!(response.opcode(), opcode::LOGIN_RESPONSE, "{response:?}");
    match u16::from_be_bytes([response.bhs[36], response.bhs[37]]) {
        0 => Ok(pdu::parse_text(&response.data)),
        status => Err(status),
    }
}

/// *Authentication failure* (RFC 7143 §11.13.5).
const AUTHENTICATION_FAILURE: u16 = 0x0201;

#[test]
fn new_logins_need_the_new_secret_and_old_sessions_stay() {
    let rig = Rig::start("");
    rig.make(
        Hand::Http,
        &Change::CreateVolume("v1", json!({"backend": "mem", "size": "1M"})),
    );
    rig.make(Hand::Http, &Change::CreateTarget(TARGET));
    rig.make(Hand::Http, &Change::Map(TARGET, "v1", 0));
    let set = |secret: &str| {
        let accounts = json!([{"user": "web", "secret": secret}]);
        rig.verb(&["target", "set", TARGET, &format!("accounts={accounts}")])
            .expect(0)
    };
    set("first-secret-of-web");
    let mut old = log_in(&rig, 1, "web", "first-secret-of-web").unwrap();
    assert!(scsi_write(&mut old, 1, 5).is_good());
    set("second-secret-of-web");
    assert_eq!(
        log_in(&rig, 2, "web", "first-secret-of-web").unwrap_err(),
        AUTHENTICATION_FAILURE
    );
    let mut new = log_in(&rig, 3, "web", "second-secret-of-web").unwrap();
    assert_eq!(scsi_read(&mut new, 1), 5);
    assert_eq!(scsi_read(&mut old, 1), 5);
    // By hand it ends, and cannot come back as it was.
    let sessions = rig.show(&["session", "list"]);
    let of_old = sessions["items"].as_array().unwrap().iter();
    let id = of_old
        .filter(|it| it["peer-name"].as_str().unwrap().ends_with("tests-1"))
        .map(|it| it["id"].as_str().unwrap().to_owned())
        .next()
        .unwrap();
    rig.verb(&["session", "close", &id]).expect(0);
    assert!(old.is_closed_within(LIMIT).unwrap());
    assert_eq!(
        log_in(&rig, 1, "web", "first-secret-of-web").unwrap_err(),
        AUTHENTICATION_FAILURE
    );
    assert_eq!(scsi_read(&mut new, 1), 5);
}

/// Secrets by the way in which they came to the server.
const SECRETS: [(&str, &str); 7] = [
    ("the file", "sesame-of-the-file"),
    ("a file of its own", "sesame-of-a-file"),
    ("a verb", "sesame-of-a-verb"),
    ("a request", "sesame-of-a-request"),
    ("the target's own", "sesame-of-mutual"),
    ("a refused request", "sesame-refused"),
    ("a broken request", "sesame-broken"),
];

#[test]
fn a_secret_that_was_given_is_told_nowhere() {
    let secret = |way: &str| SECRETS.iter().find(|it| it.0 == way).unwrap().1;
    let mut rig = Rig::new(longshore_tests::server::ServerBuilder::new(), "");
    fs::write(rig.scratch.join("secret"), secret("a file of its own")).unwrap();
    rig.write_file(&format!(
        "\n[[target]]\nname = \"{TARGET}\"\nluns = [{{ lun = 0, volume = \"f0\" }}]\naccounts = [\n  \
           {{ user = \"one\", secret = \"{}\" }},\n  {{ user = \"two\", secret-file = \"{}\" }},\n]\n\n\
         [log]\nlevel = \"trace\"\n",
        secret("the file"),
        rig.path("secret"),
    ));
    rig.start_again();
    let mut seen = vec![("the first token".to_owned(), rig.token())];
    let mut said = Vec::new();
    let other = "iqn.2026-11.local.longshore:secrets";
    let account = |secret: &str| json!([{"user": "three", "secret": secret}]);
    let accounts = format!("accounts={}", account(secret("a verb")));
    let made = rig.verb(&["target", "create", other, "luns=[]", &accounts]);
    said.push(made.clone().expect(0).stdout + &made.stderr);
    let body = json!({
        "accounts": account(secret("a request")),
        "mutual": {"user": "target", "secret": secret("the target's own")},
    });
    let path = format!("/api/v1/targets/{other}");
    for path in [format!("{path}?dry-run"), path.clone()] {
        said.push(rig.ask("PATCH", &path, Some(&body)).expect_success().body);
    }
    // A key that there is none of, and a value of the wrong kind, beside secrets.
    let unknown =
        json!({"accounts": [{"user": "x", "secret": secret("a refused request"), "colour": 1}]});
    let wrong = json!({"accounts": secret("a broken request")});
    for body in [unknown, wrong] {
        let reply = rig.ask("PATCH", &path, Some(&body));
        assert!((400..500).contains(&reply.status), "{reply:?}");
        said.push(reply.body);
    }
    let token = rig
        .verb(&["token", "create", "reader", "--role", "read"])
        .expect(0);
    seen.push(("a token".to_owned(), token.stdout.trim().to_owned()));
    // Logins, right and wrong.
    assert!(log_in(&rig, 1, "one", secret("the file")).is_ok());
    assert!(log_in(&rig, 2, "two", secret("a file of its own")).is_ok());
    assert!(log_in(&rig, 3, "one", secret("a verb")).is_err());
    // A wrong token does not come back either.
    let wrong = "longshore_0123456789-a-wrong-token";
    seen.push(("a wrong token".to_owned(), wrong.to_owned()));
    let refused = ApiAddress::Tcp(rig.api, Some(wrong.to_owned()));
    let refused = refused.ask("GET", "/api/v1/volumes", None).unwrap();
    assert_eq!(refused.status, 401);
    said.push(refused.body);
    rig.server().reload().unwrap();
    rig.server().wait_for_log("SIGHUP: read the sizes");

    for path in [
        "/",
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/api/v1/",
        "/api/v1/config",
        "/api/v1/config/revisions",
        "/api/v1/config/revisions/1",
        "/api/v1/config/revisions/2",
        "/api/v1/events?after=0",
        "/api/v1/sessions",
        "/api/v1/statistics",
        "/api/v1/subsystems",
        "/api/v1/targets",
        &format!("/api/v1/targets/{TARGET}"),
        &path,
        "/api/v1/tokens",
        "/api/v1/volumes",
    ] {
        said.push(rig.ask("GET", path, None).body);
    }
    for words in [
        &["config", "export"][..],
        &["config", "show", "2"],
        &["target", "show", other],
    ] {
        said.push(rig.verb(words).expect(0).stdout);
    }
    let (_, log) = rig.stop();
    assert!(log.contains("DEBUG"), "it tells all there is to tell");
    said.push(log);
    let audit = fs::read_to_string(rig.scratch.join("state/audit.log")).unwrap();
    assert!(audit.contains("create token reader"), "{audit}");
    said.push(audit);

    let ways = SECRETS.map(|(way, secret)| (way.to_owned(), secret.to_owned()));
    seen.extend(ways);
    for (way, secret) in &seen {
        let told = said.iter().find(|text| text.contains(secret.as_str()));
        assert!(told.is_none(), "{way}: {told:?}");
    }
    let mut stored = 0;
    look_into(&rig.scratch.join("state"), &mut |path, text| {
        if seen
            .iter()
            .any(|(_, secret)| text.contains(secret.as_str()))
        {
            let mode = fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
            stored += 1;
        }
    });
    assert!(stored >= 2, "the token and a revision");
}

fn look_into(directory: &Path, see: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            look_into(&path, see);
        } else {
            see(&path, &String::from_utf8_lossy(&fs::read(&path).unwrap()));
        }
    }
}

#[test]
fn another_user_may_nothing_on_the_socket() {
    if !rustix::process::geteuid().is_root() {
        skip("only root can become another user");
        return;
    }
    let rig = Rig::start("");
    // A program in a place that all can reach.
    let copy = rig.scratch.join("longshore");
    let status = Command::new("cp").arg(program()).arg(&copy).status();
    assert!(status.unwrap().success());
    open_to_all(&copy).unwrap();
    open_to_all(rig.scratch.path()).unwrap();
    let ask = |user: &str, words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={user}"), &format!("--regid={user}")]);
        command
            .args(["--clear-groups", "--"])
            .arg(&copy)
            .args(words);
        command.env("LONGSHORE_SERVER", rig.socket());
        command.env_remove("LONGSHORE_TOKEN");
        VerbResult::of(command)
    };
    let words: [&[&str]; 3] = [
        &["status"],
        &["volume", "create", "v1", "backend=mem", "size=1M"],
        &["token", "create", "x", "--role", "admin"],
    ];
    ask("0", words[0]).expect(0);
    for words in words {
        let refused = ask("65534", words).expect(1);
        assert_eq!(refused.stdout, "", "{refused:?}");
    }
    // Whatever became of the permissions of the socket.
    open_to_all(&rig.socket()).unwrap();
    for words in words {
        let refused = ask("65534", words).expect(1);
        assert!(refused.stderr.contains("65534"), "{refused:?}");
    }
    assert_eq!(rig.revision(), 0);
    let audit = fs::read_to_string(rig.scratch.join("state/audit.log")).unwrap_or_default();
    assert!(!audit.contains("create token x"), "{audit}");
}

fn open_to_all(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777))
}
