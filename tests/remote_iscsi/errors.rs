//! What cannot be reached is told with what there is, and what to do.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use longshore_initiator::error::Error;
use longshore_initiator::iscsi::discover;
use longshore_initiator::options::Options;
use longshore_initiator::url::Url;
use longshore_tests::process::assert_takes_less;
use longshore_tests::server::{ServerBuilder, TARGET, free_port};

use crate::rig::{Rig, host_port, server, url, with_config};

fn refused(url: &Url, options: &Options) -> Error {
    Rig::attach(url, options)
        .err()
        .expect("it cannot be reached")
}

#[test]
fn a_target_that_is_not_there_is_told_with_those_that_are() {
    let server = server();
    let url = format!(
        "iscsi://{}/iqn.2026-11.local.longshore:other/0",
        server.portal(0)
    );
    let error = refused(&url.parse().unwrap(), &Options::default());
    let Error::NotFound { available, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(available, &[TARGET.to_owned()]);
    assert!(
        error
            .to_string()
            .contains("use one of iqn.2026-11.local.longshore:default")
    );
}

#[test]
fn a_lun_that_is_not_there_is_told_with_those_that_are() {
    let server = ServerBuilder::new()
        .volume("disk0,backend=null,size=1G")
        .volume("disk1,backend=null,size=1G")
        .iscsi()
        .start()
        .unwrap();
    for lun in [2, 300] {
        let error = refused(&url(server.portal(0), lun), &Options::default());
        let Error::NotFound {
            wanted, available, ..
        } = &error
        else {
            panic!("{error:?}")
        };
        assert_eq!(wanted, &format!("LUN {lun}"));
        assert_eq!(available, &["LUN 0".to_owned(), "LUN 1".to_owned()]);
    }
}

#[test]
fn initiators_without_access_are_told_to_ask_for_it() {
    let server = with_config(&format!(
        "[[target]]\nname = \"{TARGET}\"\n\
         [[target.access]]\ninitiators = [\"iqn.2001-04.com.example:known\"]\n"
    ));
    let url = url(server.portal(0), 0);
    let error = refused(&url, &Options::default());
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("initiator's name"), "{error}");
    let known = longshore_iscsi::name::IscsiName::parse("iqn.2001-04.com.example:known").unwrap();
    let options = Options {
        initiator_name: Some(known),
        ..Options::default()
    };
    Rig::attach(&url, &options).unwrap().verify(&[512]);
}

#[test]
fn nobody_there_and_somebody_silent_are_told_apart_in_time() {
    let mut options = Options::default();
    options.timeouts.login = Duration::from_millis(300);
    let error = refused(&url(free_port(), 0), &options);
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let portal = silent.local_addr().unwrap();
    assert_takes_less(Duration::from_secs(3), || {
        let start = Instant::now();
        let error = refused(&url(portal, 0), &options);
        assert!(
            matches!(error, Error::TimedOut { step: "login", .. }),
            "{error:?}"
        );
        start.elapsed()
    });
    let error = discover(&host_port(portal), &options).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
}

#[test]
fn something_that_speaks_another_protocol_is_no_target() {
    use std::io::{Read, Write};
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let portal = other.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in other.incoming().take(3) {
            let mut stream = stream.unwrap();
            let text = format!(
                "HTTP/1.1 400 Bad Request\r\nContent-Length: 400\r\n\r\n{:400}",
                "what?"
            );
            stream.write_all(text.as_bytes()).unwrap();
            // Closing with unread bytes resets the connection, and the peer loses what was sent.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let error = refused(&url(portal, 0), &Options::default());
    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
}
