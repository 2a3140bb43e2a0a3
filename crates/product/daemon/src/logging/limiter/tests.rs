use super::*;

use tracing::callsite::{Callsite, DefaultCallsite};
use tracing::metadata::Kind as MetadataKind;
use tracing::{Metadata, metadata};

/// A place in a program that logs.
macro_rules! place {
    () => {{
        static META: Metadata<'static> = metadata! {
            name: "place",
            target: "longshore_server::medium",
            level: Level::WARN,
            fields: &[],
            callsite: &PLACE,
            kind: MetadataKind::EVENT
        };
        static PLACE: DefaultCallsite = DefaultCallsite::new(&META);
        Identifier(&PLACE as &dyn Callsite)
    }};
}

fn record(fields: &[(&'static str, &str)]) -> Record {
    Record {
        level: Level::WARN,
        target: "longshore_server::medium",
        message: "operation failed".to_owned(),
        fields: fields
            .iter()
            .map(|(name, text)| (*name, Value::String((*text).to_owned())))
            .collect(),
    }
}

fn disk(name: &str) -> Record {
    record(&[("volume", name), ("error", "no space")])
}

/// How many lines of so many get into the log.
fn written(
    limiter: &mut Limiter,
    place: &Identifier,
    record: &Record,
    count: u64,
    now: Instant,
) -> u64 {
    let admitted = (0..count).filter(|_| limiter.admit(place.clone(), record, now));
    u64::try_from(admitted.count()).unwrap()
}

fn repeated(record: &Record) -> u64 {
    let field = record.fields.iter().find(|(name, _)| *name == "repeated");
    field.unwrap().1.as_u64().unwrap()
}

#[test]
fn ten_thousand_lines_are_ten_and_one_that_counts_the_rest() {
    let (mut limiter, place, start) = (Limiter::default(), place!(), Instant::now());
    assert_eq!(limiter.due(), None);
    assert_eq!(written(&mut limiter, &place, &disk("a"), 10_000, start), 10);
    let end = start + FIRST_PERIOD;
    assert_eq!(limiter.due(), Some(end));
    assert!(limiter.expire(end - Duration::from_millis(1)).is_empty());
    let summaries = limiter.expire(end);
    let [summary] = &summaries[..] else {
        panic!("{summaries:?}")
    };
    assert_eq!(
        summary.message,
        "operation failed (and 9990 more in the last 10 s)"
    );
    assert_eq!(repeated(summary), 9_990);
    assert_eq!(summary.fields[0], ("volume", "a".into()));
    assert_eq!(summary.fields[1], ("error", "no space".into()));
}

#[test]
fn what_goes_on_gets_a_line_a_minute_and_every_line_is_counted() {
    let (mut limiter, place, start) = (Limiter::default(), place!(), Instant::now());
    let (mut lines, mut counted) = (0, 0);
    for second in 0..3_600 {
        let now = start + Duration::from_secs(second);
        for summary in limiter.expire(now) {
            lines += 1;
            counted += repeated(&summary);
        }
        let admitted = written(&mut limiter, &place, &disk("a"), 100, now);
        lines += admitted;
        counted += admitted;
    }
    for summary in limiter.drain(start + Duration::from_secs(3_600)) {
        counted += repeated(&summary);
    }
    assert_eq!(counted, 360_000);
    assert!(lines < 140, "{lines}");
    assert_eq!(limiter.due(), None);
}

#[test]
fn who_has_been_quiet_for_a_period_is_forgotten() {
    let (mut limiter, place, start) = (Limiter::default(), place!(), Instant::now());
    written(&mut limiter, &place, &disk("a"), 11, start);
    limiter.expire(start + FIRST_PERIOD);
    assert!(
        limiter
            .expire(start + FIRST_PERIOD + NEXT_PERIOD)
            .is_empty()
    );
    assert_eq!(limiter.due(), None);
    let later = start + 2 * NEXT_PERIOD;
    assert_eq!(written(&mut limiter, &place, &disk("a"), 10, later), 10);
}

#[test]
fn objects_reasons_and_places_count_apart_and_ports_do_not() {
    let (mut limiter, one, other) = (Limiter::default(), place!(), place!());
    let now = Instant::now();
    assert_eq!(written(&mut limiter, &one, &disk("a"), 20, now), 10);
    assert_eq!(written(&mut limiter, &one, &disk("b"), 20, now), 10);
    let reason = record(&[("volume", "a"), ("error", "EIO")]);
    assert_eq!(written(&mut limiter, &one, &reason, 20, now), 10);
    assert_eq!(written(&mut limiter, &other, &disk("a"), 20, now), 10);
    let peer = |port: u16| record(&[("peer", &format!("192.0.2.7:{port}"))]);
    let lines: u64 = (1..=50)
        .map(|port| written(&mut limiter, &one, &peer(port), 1, now))
        .sum();
    assert_eq!(lines, 10);
    let summaries = limiter.drain(now);
    let of_peer = summaries
        .iter()
        .find(|summary| summary.fields[0].0 == "peer");
    assert_eq!(of_peer.unwrap().fields[0].1, "192.0.2.7");
    assert_eq!(repeated(of_peer.unwrap()), 40);
}

#[test]
fn a_peer_that_makes_up_names_is_limited_and_remembered_in_bounded_memory() {
    let (mut limiter, place, now) = (Limiter::default(), place!(), Instant::now());
    let mut lines = 0;
    for number in 0..100_000 {
        let name = record(&[("initiator", &format!("iqn.x:{number}"))]);
        lines += written(&mut limiter, &place, &name, 1, now);
    }
    assert_eq!(lines, LINES_OF_KIND);
    assert_eq!(
        limiter.kinds.values().next().unwrap().objects.len(),
        OBJECTS
    );
    let summaries = limiter.drain(now);
    assert_eq!(summaries.len(), 1);
    assert_eq!(summaries.iter().map(repeated).sum::<u64>() + lines, 100_000);
    assert!(summaries[0].message.contains("more from other sources"));
}

#[test]
fn what_the_operator_did_or_asked_for_is_not_limited() {
    let (mut limiter, place, now) = (Limiter::default(), place!(), Instant::now());
    let mut own = disk("a");
    own.target = "longshore_daemon::serve";
    assert_eq!(written(&mut limiter, &place, &own, 1_000, now), 1_000);
    let mut debug = disk("a");
    debug.level = Level::DEBUG;
    assert_eq!(written(&mut limiter, &place, &debug, 1_000, now), 1_000);
    assert!(limiter.drain(now).is_empty());
}
