//! Streams that are cut anywhere, damaged or no answers at all.

use proptest::prelude::*;

use super::*;

/// Everything a controller may say, with its padding and digests.
fn long_answer(scene: &mut Scene) -> Vec<u8> {
    let one = scene.submit(&read(3), &[]);
    let two = scene.submit(&write(40), &[]);
    let three = scene.submit(&read(2), &[]);
    scene.data(one, 0, 700, false, false);
    scene.r2t(two, 1, 0, 5000);
    scene.data(three, 0, 1024, true, true);
    scene.r2t(two, 2, 5000, 15_480);
    scene.data(one, 700, 836, true, false);
    scene.answer(two, Status::SUCCESS);
    scene.answer(one, Status::SUCCESS);
    let error = FatalError::plain(FatalErrorStatus::PDU_SEQUENCE_ERROR);
    let by = Terminator::Controller;
    push_term_req(TermReq { by, error }, &[1; 24], &mut scene.answers);
    flatten(&scene.answers, &[])
}

/// Data of one PDU that came in pieces counts as one.
fn joined(log: Vec<String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    let parse = |text: &str| {
        let rest = text.strip_prefix("Data ")?;
        let (offset, length) = rest.split_once(' ')?;
        Some((offset.parse::<u32>().ok()?, length.parse::<u32>().ok()?))
    };
    for event in log {
        let last = joined.last().and_then(|last| parse(last));
        match (last, parse(&event)) {
            (Some((start, so_far)), Some((offset, length))) if start + so_far == offset => {
                joined.pop();
                joined.push(format!("Data {start} {}", so_far + length));
            }
            _ => joined.push(event),
        }
    }
    joined
}

#[test]
fn a_stream_may_be_cut_at_every_byte() {
    let config = ConnectionConfig {
        digests: BOTH,
        hpda: 15,
        ..ConnectionConfig::default()
    };
    let mut scene = Scene::ready(config);
    let stream = long_answer(&mut scene);
    let whole = scene.feed(&stream);
    assert_eq!(whole.len(), 9, "{whole:?}");
    for cut in 0..stream.len() {
        let mut scene = Scene::ready(config);
        long_answer(&mut scene);
        let mut log = scene.feed(&stream[..cut]);
        log.extend(scene.feed(&stream[cut..]));
        assert_eq!(joined(log), whole, "cut at {cut}");
    }
    let mut scene = Scene::ready(config);
    long_answer(&mut scene);
    let log = stream.chunks(1).flat_map(|byte| scene.feed(byte)).collect();
    assert_eq!(joined(log), whole);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_controller_makes_a_host_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        ready: bool,
        piece in 1_usize..200,
    ) {
        let mut scene = if ready {
            Scene::ready(digesting())
        } else {
            Scene::new(digesting())
        };
        if ready {
            scene.submit(&read(1), &[]);
            scene.submit(&write(100), &[]);
        }
        for piece in bytes.chunks(piece) {
            scene.feed(piece);
        }
    }

    /// One byte of an answer is anything: without digests it is often still a valid answer.
    #[test]
    fn a_changed_answer_makes_no_host_panic(at: prop::sample::Index, value: u8) {
        let config = ConnectionConfig::default();
        let mut scene = Scene::ready(config);
        let mut stream = long_answer(&mut scene);
        let at = at.index(stream.len());
        stream[at] = value;
        let log = scene.feed(&stream);
        prop_assert!(!log.is_empty());
    }
}
