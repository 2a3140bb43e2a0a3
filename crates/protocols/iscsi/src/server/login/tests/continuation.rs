//! Texts cut by the C bit.

use super::*;

#[test]
fn text_cut_anywhere_is_one_text() {
    let text = format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0InitialR2T=No\0");
    for cut in 0..=text.len() {
        let mut talk = Talk::new();
        let (head, tail) = text.as_bytes().split_at(cut);
        let request = LoginRequest {
            continues: true,
            current_stage: OPERATIONAL,
            ..talk.header
        };
        let heard = talk.send(&request, head);
        assert!(heard.stays().text.is_empty());
        let request = LoginRequest {
            transit: true,
            current_stage: OPERATIONAL,
            next_stage: FULL,
            ..talk.header
        };
        let heard = talk.send(&request, tail);
        assert_eq!(heard.value("InitialR2T"), "No");
        heard.finished();
    }
}

#[test]
fn the_c_bit_excludes_the_t_bit() {
    let mut talk = Talk::new();
    let request = LoginRequest {
        transit: true,
        continues: true,
        next_stage: OPERATIONAL,
        ..talk.header
    };
    assert_eq!(
        talk.send(&request, b"").refused(),
        LoginStatus::INITIATOR_ERROR
    );
}

/// More unknown keys than fit the answers of one response.
fn long_text() -> String {
    let key = "K".repeat(60);
    (0..150).fold(names(), |text, number| format!("{text} {key}{number:03}=1"))
}

fn say_long_text(talk: &mut Talk) -> Vec<u8> {
    let text = long_text();
    let mut data: Vec<u8> = Vec::new();
    for pair in text.split_whitespace() {
        data.extend_from_slice(pair.as_bytes());
        data.push(0);
    }
    let mut pieces = data.chunks(DATA_SEGMENT_MAX).peekable();
    while let Some(piece) = pieces.next() {
        let last = pieces.peek().is_none();
        let request = LoginRequest {
            transit: last,
            continues: !last,
            current_stage: OPERATIONAL,
            next_stage: FULL,
            ..talk.header
        };
        let reply = talk.login.handle(&request, piece, &mut talk.directory);
        assert!(
            matches!(reply.outcome, LoginOutcome::Continue),
            "{:?}",
            reply.outcome
        );
        if last {
            assert!(reply.response.continues && !reply.response.transit);
            assert_eq!(reply.data.len(), DATA_SEGMENT_MAX);
            return reply.data;
        }
        assert!(reply.data.is_empty());
    }
    unreachable!()
}

#[test]
fn long_answers_are_cut_and_the_transition_comes_with_the_last_piece() {
    let mut talk = Talk::new();
    let mut text = say_long_text(&mut talk);
    let request = LoginRequest {
        transit: true,
        current_stage: OPERATIONAL,
        next_stage: FULL,
        ..talk.header
    };
    loop {
        let reply = talk.login.handle(&request, b"", &mut talk.directory);
        text.extend_from_slice(&reply.data);
        if !reply.response.continues {
            assert!(matches!(reply.outcome, LoginOutcome::Finished(_)));
            break;
        }
    }
    assert_eq!(text::parse(&text).unwrap().len(), 152);
}

#[test]
fn text_in_the_middle_of_a_long_answer_ends_the_login() {
    let mut talk = Talk::new();
    say_long_text(&mut talk);
    let heard = talk.say(OPERATIONAL, Some(FULL), "InitialR2T=No");
    assert_eq!(heard.refused(), LoginStatus::INITIATOR_ERROR);
}

#[test]
fn text_without_end_is_refused() {
    let mut talk = Talk::new();
    let request = LoginRequest {
        continues: true,
        ..talk.header
    };
    let piece = [b'x'; DATA_SEGMENT_MAX];
    for _ in 0..text::TEXT_LENGTH_MAX / DATA_SEGMENT_MAX {
        talk.send(&request, &piece).stays();
    }
    assert_eq!(
        talk.send(&request, &piece).refused(),
        LoginStatus::INITIATOR_ERROR
    );
    let mut talk = Talk::new();
    let heard = talk.send(&request, &[0; DATA_SEGMENT_MAX + 1]);
    assert_eq!(heard.refused(), LoginStatus::INITIATOR_ERROR);
}
