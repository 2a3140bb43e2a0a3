//! Coming to a volume: what it says of itself, who is let in, what is refused and how that reads.

use std::time::{Duration, Instant};

use longshore_initiator::attach::{Attachment, attach};
use longshore_initiator::error::Error;
use longshore_initiator::info::Protocol;
use longshore_initiator::options::{DigestWish, Options};
use longshore_initiator::url::Url;
use longshore_iscsi::chap::{ChapAccount, Secret};
use longshore_tests::process::assert_takes_less;
use longshore_tests::server::free_port;

use crate::Fact;
use crate::load::{Load, Queues};
use crate::peer::{Maker, Peer, SECRET, TARGET_SECRET, TARGET_USER, USER};

/// For a server to see that somebody has gone.
const PATIENCE: Duration = Duration::from_secs(5);

pub const FACTS: &[Fact] = &[
    Fact::of_all("says_how_large_it_is_and_who_made_it", information),
    Fact::of_all("has_a_volume_with_blocks_of_4096_bytes", wide_blocks),
    Fact::of_all("is_the_same_volume_on_both_portals", same_volume),
    Fact::of_all("describes_connection_and_reservations", description),
    Fact::of_all(
        "a_volume_that_is_not_there_is_named_in_the_error",
        wrong_volume,
    ),
    Fact::of_all("a_target_that_is_not_there_is_an_error", wrong_target),
    Fact::of_all("a_port_where_nobody_listens_is_an_error", nobody_listens),
    Fact::of_all(
        "the_second_portal_is_used_when_the_first_is_dead",
        second_portal,
    ),
    Fact::of(has_chap, "chap_lets_in_who_knows_the_secret", chap),
    Fact::of(has_chap, "a_wrong_secret_is_refused", wrong_secret),
    Fact::of(has_chap, "no_secret_is_refused", no_secret),
    Fact::of(has_chap, "the_target_proves_itself", mutual_chap),
    Fact::of(
        has_chap,
        "a_target_that_does_not_know_its_secret_is_refused",
        wrong_target_secret,
    ),
    Fact::of(
        is_nvmet,
        "a_host_that_is_not_named_is_refused",
        closed_subsystem,
    ),
    Fact::of_all(
        "a_hundred_attachments_leave_nothing_behind",
        again_and_again,
    ),
];

fn has_chap(peer: &Peer) -> bool {
    peer.chap.is_some()
}

fn is_nvmet(peer: &Peer) -> bool {
    peer.maker == Maker::Nvmet
}

pub fn attached(url: &Url, options: &Options) -> Attachment {
    attach(url, options).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn refused(url: &Url, options: &Options) -> Error {
    match attach(url, options) {
        Ok(_) => panic!("{url}: attached"),
        Err(error) => error,
    }
}

fn information(peer: &Peer) {
    let attachment = attached(&peer.url(), &peer.options());
    let info = &attachment.info;
    println!("{info:#?}");
    assert_eq!(info.protocol, peer.protocol);
    assert_eq!(
        (info.block_size, info.block_count),
        (512, Peer::blocks(512))
    );
    assert!(info.physical_block_size >= 512 && info.physical_block_size.is_power_of_two());
    assert!(!info.read_only);
    let vendor = match peer.maker {
        Maker::Tgt => "IET",
        Maker::Lio => "LIO-ORG",
        Maker::Nvmet => "Linux",
        Maker::Longshore => "",
    };
    let said = format!(
        "{} {} {}",
        info.vendor,
        info.product,
        info.identifiers.len()
    );
    assert!(said.contains(vendor), "{said}");
    assert!(
        !info.product.is_empty() && !info.serial.is_empty(),
        "{said}"
    );
    assert!(!info.identifiers.is_empty(), "{said}");
    assert!(info.unmap && info.write_zeroes, "{info:?}");
    // LIO has no cache by default, and says so; then there is nothing for FUA to do.
    assert!(info.fua || !info.write_cache, "{info:?}");
    // tgt 1.0.85 states a length for COMPARE AND WRITE, and has no such command.
    if peer.maker != Maker::Tgt {
        let has_compare = info.compare_and_write_max.is_some();
        assert_eq!(has_compare, peer.has_compare_and_write(), "{info:?}");
    }
    attachment.control.close();
}

fn wide_blocks(peer: &Peer) {
    let url = peer.url_of_volume(peer.wide_volume);
    let mut queues = Queues::attach(&url, &peer.options());
    let info = &queues.attachment.info;
    assert_eq!(
        (info.block_size, info.block_count),
        (4096, Peer::blocks(4096))
    );
    let mut load = Load::new(peer, 300, 16);
    load.region = 0..2048;
    load.blocks_max = 70;
    load.run(&mut queues);
    queues.close();
}

fn same_volume(peer: &Peer) {
    let [first, second] = peer.portals.map(|portal| {
        let attachment = attached(&peer.url_at(portal), &peer.options());
        let info = attachment.info.clone();
        attachment.control.close();
        info
    });
    assert!(first.is_same_volume(&second), "{first:?} {second:?}");
    let other = attached(&peer.url_of_volume(peer.wide_volume), &peer.options());
    assert!(
        !first.is_same_volume(&other.info),
        "{first:?} {:?}",
        other.info
    );
    other.control.close();
}

fn description(peer: &Peer) {
    let mut attachment = attached(&peer.url(), &peer.options());
    let description = attachment
        .control
        .describe()
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(description.info.block_count, Peer::blocks(512));
    let names: Vec<&str> = description
        .negotiated
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let expected: &[&str] = match peer.protocol {
        Protocol::Iscsi => &[
            "MaxBurstLength",
            "FirstBurstLength",
            "InitialR2T",
            "HeaderDigest",
        ],
        Protocol::NvmeTcp => &["MAXH2CDATA"],
    };
    for name in expected {
        assert!(
            names.iter().any(|other| other.eq_ignore_ascii_case(name)),
            "{name}: {names:?}"
        );
    }
    if let Some(reservation) = &description.reservation {
        assert_eq!(
            (reservation.kind.as_ref(), reservation.registrations.len()),
            (None, 0)
        );
    }
    attachment.control.close();
}

fn wrong_volume(peer: &Peer) {
    let error = refused(&peer.url_of_volume(77), &peer.options());
    assert!(matches!(error, Error::NotFound { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("77"), "{text}");
    // It says what there is.
    assert!(text.contains(&peer.volume.to_string()), "{text}");
}

fn wrong_target(peer: &Peer) {
    let name = match peer.protocol {
        Protocol::Iscsi => "iqn.2026-11.local.longshore.peer:nobody",
        Protocol::NvmeTcp => "nqn.2026-11.local.longshore.peer:nobody",
    };
    let error = refused(&peer.url_of_target(name), &peer.options());
    let is_told = matches!(error, Error::NotFound { .. } | Error::Refused { .. });
    assert!(is_told, "{error:?}");
    assert!(
        error.to_string().contains(&peer.portals[0].to_string()),
        "{error}"
    );
}

fn nobody_listens(peer: &Peer) {
    assert_takes_less(Duration::from_secs(1), || {
        let begin = Instant::now();
        let error = refused(&peer.url_at(free_port()), &peer.options());
        assert!(matches!(error, Error::Connect { .. }), "{error:?}");
        begin.elapsed()
    });
}

fn second_portal(peer: &Peer) {
    let url = peer.url_over([free_port(), peer.portals[1]]);
    let attachment = attached(&url, &peer.options());
    assert_eq!(attachment.portal, peer.portals[1]);
    attachment.control.close();
}

fn account(name: &str, secret: &str) -> Option<ChapAccount> {
    Some(ChapAccount {
        name: name.to_owned(),
        secret: Secret::from(secret),
    })
}

fn chap(peer: &Peer) {
    let options = Options {
        chap: account(USER, SECRET),
        ..peer.options()
    };
    let mut queues = Queues::attach(&peer.chap_url(false), &options);
    Load::new(peer, 60, 8).run(&mut queues);
    queues.close();
}

fn wrong_secret(peer: &Peer) {
    let options = Options {
        chap: account(USER, "longshore-wrong!"),
        ..peer.options()
    };
    let error = refused(&peer.chap_url(false), &options);
    assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
    assert!(
        !format!("{error} {error:?}").contains("longshore-wrong"),
        "{error:?}"
    );
}

fn no_secret(peer: &Peer) {
    let error = refused(&peer.chap_url(false), &peer.options());
    // LIO of Linux 6.1 closes the connection in place of a Login Response.
    let is_told = match peer.maker {
        Maker::Lio => matches!(error, Error::Lost { .. }),
        _ => matches!(error, Error::Authentication { .. }),
    };
    assert!(is_told, "{error:?}");
}

fn mutual_chap(peer: &Peer) {
    let options = Options {
        chap: account(USER, SECRET),
        mutual_chap: account(TARGET_USER, TARGET_SECRET),
        header_digest: DigestWish::Ask,
        ..peer.options()
    };
    let mut queues = Queues::attach(&peer.chap_url(true), &options);
    Load::new(peer, 60, 8).run(&mut queues);
    queues.close();
}

fn wrong_target_secret(peer: &Peer) {
    let options = Options {
        chap: account(USER, SECRET),
        mutual_chap: account(TARGET_USER, "longshore-wrong!"),
        ..peer.options()
    };
    let error = refused(&peer.chap_url(true), &options);
    assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
    assert!(
        !format!("{error} {error:?}").contains("longshore-wrong"),
        "{error:?}"
    );
}

fn closed_subsystem(peer: &Peer) {
    let url = peer.url_of_target("nqn.2026-11.local.longshore.peer:closed");
    let error = refused(&url, &peer.options());
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
}

fn again_and_again(peer: &Peer) {
    let times = if peer.maker.is_slow() { 20 } else { 100 };
    let before = peer.holds();
    for time in 0..times {
        // Sometimes in order, sometimes by dropping everything.
        let attachment = attached(&peer.url(), &peer.options());
        if time % 2 == 0 {
            Queues::over(attachment).close();
        }
    }
    let begin = Instant::now();
    while peer.holds() > before {
        let left = peer.holds();
        assert!(
            begin.elapsed() < PATIENCE,
            "{left:?} where there were {before:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
