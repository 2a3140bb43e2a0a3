//! iSCSI initiators.

use longshore_initiator::attach;
use longshore_initiator::options::Options;
use longshore_initiator::url::Url;
use longshore_iscsi::chap::{ChapAccount, Secret};
use longshore_tests::server::{Server, ServerBuilder, TARGET};

const SECRET: &str = "a-secret-of-23-letters.";

fn serve() -> Server {
    let config = format!(
        "[limits]\nlogin-pause-max = \"1h\"\n[[target]]\nname = \"{TARGET}\"\n\
         accounts = [{{ user = \"ann\", secret = \"{SECRET}\" }}]\n"
    );
    let builder = ServerBuilder::new().volume("m,backend=mem,size=1M");
    builder.iscsi().config(&config).start().unwrap()
}

/// What a login with these credentials ends with.
fn log_in(server: &Server, name: &str, user: &str, secret: &str) -> Result<(), String> {
    let url: Url = format!("iscsi://{}/{TARGET}/0", server.portal(0))
        .parse()
        .unwrap();
    let options = Options {
        initiator_name: Some(
            format!("iqn.2026-11.local.longshore:{name}")
                .parse()
                .unwrap(),
        ),
        chap: Some(ChapAccount {
            name: user.to_owned(),
            secret: Secret::from(secret),
        }),
        ..Options::default()
    };
    let attached = attach::attach(&url, &options);
    attached.map(drop).map_err(|error| error.to_string())
}

#[test]
fn an_unknown_user_gets_the_answer_of_a_wrong_secret() {
    let server = serve();
    let unknown = log_in(&server, "a", "bob", SECRET).unwrap_err();
    let wrong = log_in(&server, "a", "ann", "another-secret-letters.").unwrap_err();
    assert_eq!(unknown, wrong);
    log_in(&server, "a", "ann", SECRET).unwrap();
}

#[test]
fn guesses_at_a_secret_are_slowed_down() {
    let server = serve();
    let guess = || {
        let text = log_in(&server, "a", "ann", "a guess, and another one").unwrap_err();
        assert!(text.contains("authentication failed"), "{text}");
    };
    for _ in 0..6 {
        guess();
    }
    server.wait_for_log("too many wrong CHAP responses");
    // A slow machine may miss the first pause, of a second. Each guess after it makes a longer one; a good login
    // forgets them all.
    let is_paused = (0..5).any(|_| {
        let refused = log_in(&server, "a", "ann", SECRET).is_err();
        if !refused {
            (0..6).for_each(|_| guess());
        }
        refused
    });
    assert!(is_paused, "during a pause, the right secret is none either");
    // Another initiator of the same address has its own pauses.
    for _ in 0..3 {
        log_in(&server, "b", "bob", SECRET).unwrap_err();
    }
    log_in(&server, "b", "ann", SECRET).expect("others are not kept out");
}
