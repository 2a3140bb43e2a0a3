//! Rules of the keys, and that both sides compute the same.

use super::*;
use crate::keys::{Phase, TABLE};
use proptest::prelude::*;

fn target() -> (Negotiation, Ledger) {
    let negotiation = Negotiation::new(Role::Target, SessionType::Normal, Preferences::default());
    (negotiation, Ledger::new(Role::Initiator))
}

/// What a target with default preferences answers to offers, in order, and what is in force then.
fn answers(offers: &[(Key, &str)]) -> (String, OperationalParameters) {
    let (mut negotiation, _) = target();
    let mut out = TextWriter::new();
    negotiation.receive(offers, &mut out).unwrap();
    let text = String::from_utf8(out.into_bytes()).unwrap();
    (
        text.replace('\0', " ").trim_end().to_owned(),
        negotiation.conclude().unwrap(),
    )
}

fn answer(key: Key, offer: &str) -> String {
    answers(&[(key, offer)]).0
}

#[test]
fn the_standards_defaults_are_the_tables_defaults() {
    let parameters = OperationalParameters::default();
    let boolean = |value| Value::Boolean(value).to_string();
    for (key, value) in [
        (Key::HeaderDigest, "None".to_owned()),
        (Key::DataDigest, "None".to_owned()),
        (Key::MaxConnections, parameters.max_connections.to_string()),
        (Key::InitialR2T, boolean(parameters.initial_r2t)),
        (Key::ImmediateData, boolean(parameters.immediate_data)),
        (
            Key::MaxRecvDataSegmentLength,
            parameters
                .initiator_max_recv_data_segment_length
                .to_string(),
        ),
        (
            Key::MaxRecvDataSegmentLength,
            parameters.target_max_recv_data_segment_length.to_string(),
        ),
        (Key::MaxBurstLength, parameters.max_burst_length.to_string()),
        (
            Key::FirstBurstLength,
            parameters.first_burst_length.to_string(),
        ),
        (
            Key::DefaultTime2Wait,
            parameters.default_time2wait.to_string(),
        ),
        (
            Key::DefaultTime2Retain,
            parameters.default_time2retain.to_string(),
        ),
        (
            Key::MaxOutstandingR2T,
            parameters.max_outstanding_r2t.to_string(),
        ),
        (Key::DataPDUInOrder, boolean(parameters.data_pdu_in_order)),
        (
            Key::DataSequenceInOrder,
            boolean(parameters.data_sequence_in_order),
        ),
        (
            Key::ErrorRecoveryLevel,
            parameters.error_recovery_level.to_string(),
        ),
        (Key::TaskReporting, "RFC3720".to_owned()),
        (Key::ProtocolLevel, parameters.protocol_level.to_string()),
    ] {
        assert_eq!(key.definition().default, value, "{key:?}");
    }
}

#[test]
fn every_operational_key_is_answered_within_its_rule() {
    for (key, offer, expected) in [
        (Key::HeaderDigest, "CRC32C,None", "HeaderDigest=CRC32C"),
        (Key::HeaderDigest, "None,CRC32C", "HeaderDigest=None"),
        (
            Key::DataDigest,
            "Y-com.example.crc64,None",
            "DataDigest=None",
        ),
        (Key::MaxConnections, "8", "MaxConnections=1"),
        (Key::InitialR2T, "No", "InitialR2T=No"),
        (Key::InitialR2T, "Yes", "InitialR2T=Yes"),
        (Key::ImmediateData, "No", "ImmediateData=No"),
        (Key::ImmediateData, "Yes", "ImmediateData=Yes"),
        (Key::MaxBurstLength, "512", "MaxBurstLength=512"),
        (Key::MaxBurstLength, "16777215", "MaxBurstLength=1048576"),
        (Key::MaxBurstLength, "0x1000", "MaxBurstLength=4096"),
        (Key::FirstBurstLength, "512", "FirstBurstLength=512"),
        (Key::DefaultTime2Wait, "0", "DefaultTime2Wait=2"),
        (Key::DefaultTime2Wait, "3600", "DefaultTime2Wait=3600"),
        (Key::DefaultTime2Retain, "3600", "DefaultTime2Retain=0"),
        (Key::MaxOutstandingR2T, "65535", "MaxOutstandingR2T=8"),
        (Key::MaxOutstandingR2T, "1", "MaxOutstandingR2T=1"),
        (Key::DataPDUInOrder, "No", "DataPDUInOrder=Yes"),
        (Key::DataSequenceInOrder, "No", "DataSequenceInOrder=Yes"),
        (Key::ErrorRecoveryLevel, "2", "ErrorRecoveryLevel=0"),
        (
            Key::TaskReporting,
            "FastAbort,ResponseFence,RFC3720",
            "TaskReporting=ResponseFence",
        ),
        (
            Key::TaskReporting,
            "RFC3720,ResponseFence",
            "TaskReporting=RFC3720",
        ),
        (Key::ProtocolLevel, "2", "iSCSIProtocolLevel=1"),
        (Key::ProtocolLevel, "0", "iSCSIProtocolLevel=0"),
        (Key::MaxRecvDataSegmentLength, "65536", ""),
    ] {
        assert_eq!(answer(key, offer), expected);
    }
}

#[test]
fn offers_out_of_range_are_rejected_or_cut_to_what_is_admissible() {
    for (key, offer, expected) in [
        (Key::MaxBurstLength, "511", "MaxBurstLength=Reject"),
        (Key::MaxBurstLength, "16777216", "MaxBurstLength=1048576"),
        (
            Key::MaxBurstLength,
            "99999999999999999999",
            "MaxBurstLength=Reject",
        ),
        (Key::MaxBurstLength, "1~2", "MaxBurstLength=Reject"),
        (Key::MaxBurstLength, "", "MaxBurstLength=Reject"),
        (Key::MaxConnections, "0", "MaxConnections=Reject"),
        (Key::MaxOutstandingR2T, "0", "MaxOutstandingR2T=Reject"),
        (Key::MaxOutstandingR2T, "65536", "MaxOutstandingR2T=8"),
        (Key::DefaultTime2Wait, "3601", "DefaultTime2Wait=Reject"),
        (Key::DefaultTime2Retain, "3601", "DefaultTime2Retain=0"),
        (Key::ErrorRecoveryLevel, "-1", "ErrorRecoveryLevel=Reject"),
        (Key::ImmediateData, "yes", "ImmediateData=Reject"),
        (Key::InitialR2T, "1", "InitialR2T=Reject"),
    ] {
        assert_eq!(answer(key, offer), expected, "{offer}");
    }
    let (_, parameters) = answers(&[(Key::MaxBurstLength, "511"), (Key::InitialR2T, "?")]);
    assert_eq!(parameters, OperationalParameters::default());
}

#[test]
fn a_list_without_common_choice_fails() {
    let (mut negotiation, _) = target();
    let result = negotiation.receive(&[(Key::DataDigest, "CRC64")], &mut TextWriter::new());
    assert_eq!(
        result,
        Err(NegotiationError::NoCommonChoice(Key::DataDigest))
    );
}

#[test]
fn reserved_words_are_no_offers() {
    for word in ["Reject", "Irrelevant", "NotUnderstood"] {
        for key in [
            Key::MaxBurstLength,
            Key::HeaderDigest,
            Key::MaxRecvDataSegmentLength,
        ] {
            let (mut negotiation, _) = target();
            let result = negotiation.receive(&[(key, word)], &mut TextWriter::new());
            assert_eq!(result, Err(NegotiationError::ReservedWord(key)));
        }
    }
}

#[test]
fn a_declared_segment_length_is_taken_and_one_below_512_is_not() {
    for (text, length) in [
        ("512", Some(512)),
        ("0x2000", Some(8192)),
        ("16777215", Some(16_777_215)),
        ("16777216", Some(16_777_215)),
        ("4294967296", Some(16_777_215)),
        ("511", None),
        ("0", None),
        ("many", None),
    ] {
        assert_eq!(declared_segment_length(text), length, "{text}");
    }
    let (mut negotiation, _) = target();
    let key = Key::MaxRecvDataSegmentLength;
    let result = negotiation.receive(&[(key, "511")], &mut TextWriter::new());
    assert_eq!(result, Err(NegotiationError::UnacceptableDeclaration(key)));
}

#[test]
fn first_burst_length_stays_below_max_burst_length_wherever_it_stands() {
    for order in [
        [
            (Key::FirstBurstLength, "65536"),
            (Key::MaxBurstLength, "4096"),
        ],
        [
            (Key::MaxBurstLength, "4096"),
            (Key::FirstBurstLength, "65536"),
        ],
    ] {
        let (text, parameters) = answers(&order);
        assert!(text.contains("FirstBurstLength=4096"), "{text}");
        assert_eq!(parameters.first_burst_length, 4096);
    }
    let (_, parameters) = answers(&[(Key::MaxBurstLength, "4096")]);
    assert_eq!(parameters.first_burst_length, 4096);
    // Nothing is said of MaxBurstLength: its default holds.
    assert_eq!(
        answer(Key::FirstBurstLength, "1048576"),
        "FirstBurstLength=262144"
    );
}

#[test]
fn first_burst_length_is_irrelevant_without_unsolicited_data() {
    // The example of RFC 7143 §6.2.
    let (text, _) = answers(&[
        (Key::FirstBurstLength, "4192"),
        (Key::InitialR2T, "Yes"),
        (Key::ImmediateData, "No"),
    ]);
    assert_eq!(
        text,
        "FirstBurstLength=Irrelevant InitialR2T=Yes ImmediateData=No"
    );
    let (text, _) = answers(&[(Key::ImmediateData, "No"), (Key::FirstBurstLength, "4192")]);
    assert_eq!(text, "ImmediateData=No FirstBurstLength=4192");
}

#[test]
fn selections_outside_the_rule_are_not_accepted() {
    let range = Range { min: 0, max: 10 };
    let digests = Preference::Choices(&["None", "CRC32C"]);
    for (rule, preference, answer, accepted) in [
        (Rule::Minimum(range), Preference::Number(5), "5", true),
        (Rule::Minimum(range), Preference::Number(5), "0", true),
        (Rule::Minimum(range), Preference::Number(5), "6", false),
        (Rule::Maximum(range), Preference::Number(5), "5", true),
        (Rule::Maximum(range), Preference::Number(5), "10", true),
        (Rule::Maximum(range), Preference::Number(5), "11", false),
        (Rule::Maximum(range), Preference::Number(5), "4", false),
        (Rule::And, Preference::Boolean(true), "No", true),
        (Rule::And, Preference::Boolean(false), "Yes", false),
        (Rule::Or, Preference::Boolean(false), "Yes", true),
        (Rule::Or, Preference::Boolean(true), "No", false),
        (Rule::Or, Preference::Boolean(true), "no", false),
        (Rule::List, digests, "CRC32C", true),
        (Rule::List, digests, "None,CRC32C", false),
        (Rule::List, digests, "CRC64", false),
    ] {
        let value = check_selection(rule, preference, answer);
        assert_eq!(value.is_some(), accepted, "{rule:?} {answer}");
    }
}

#[test]
fn an_offer_that_decides_alone_needs_no_answer_and_others_do() {
    let preferences = Preferences {
        initial_r2t: true,
        immediate_data: false,
        ..Preferences::default()
    };
    let offered = |key| {
        let mut ledger = Ledger::new(Role::Target);
        let mut negotiation =
            Negotiation::new(Role::Initiator, SessionType::Normal, preferences.clone());
        negotiation.propose(key, &mut ledger, &mut TextWriter::new());
        assert!(negotiation.is_waiting());
        negotiation.conclude()
    };
    assert!(offered(Key::InitialR2T).unwrap().initial_r2t);
    assert!(!offered(Key::ImmediateData).unwrap().immediate_data);
    assert_eq!(
        offered(Key::MaxBurstLength),
        Err(NegotiationError::Unanswered(Key::MaxBurstLength))
    );
}

fn preferences() -> impl Strategy<Value = Preferences> {
    let digest = || {
        prop::sample::select(vec![
            DigestPolicy::None,
            DigestPolicy::PreferNone,
            DigestPolicy::PreferCrc32c,
            DigestPolicy::Crc32c,
        ])
    };
    let length = || {
        prop_oneof![
            512_u32..=70_000,
            512_u32..=16_777_215,
            Just(0),
            Just(u32::MAX)
        ]
    };
    (
        (length(), length(), length()),
        (any::<u16>(), any::<u16>(), any::<u16>()),
        any::<(bool, bool, bool, bool)>(),
        (digest(), digest()),
    )
        .prop_map(|(lengths, numbers, booleans, digests)| Preferences {
            max_recv_data_segment_length: lengths.0,
            max_burst_length: lengths.1,
            first_burst_length: lengths.2,
            max_outstanding_r2t: numbers.0,
            default_time2wait: numbers.1,
            default_time2retain: numbers.2,
            initial_r2t: booleans.0,
            immediate_data: booleans.1,
            header_digest: digests.0,
            data_digest: digests.1,
            data_pdu_in_order: booleans.2,
            data_sequence_in_order: booleans.3,
        })
}

/// Takes a text into a negotiation by way of its ledger.
fn exchange(
    negotiation: &mut Negotiation,
    ledger: &mut Ledger,
    text: TextWriter,
) -> Result<TextWriter, NegotiationError> {
    let bytes = text.into_bytes();
    let mut pairs = Vec::new();
    for pair in text::parse(&bytes).unwrap() {
        let key = Key::from_name(pair.key).unwrap();
        ledger.admit(key, pair.value, Phase::Operational)?;
        pairs.push((key, pair.value));
    }
    let mut out = TextWriter::new();
    negotiation.receive(&pairs, &mut out)?;
    Ok(out)
}

proptest! {
    #[test]
    fn both_sides_compute_the_same(
        ours in preferences(),
        theirs in preferences(),
        offered in prop::collection::hash_set(0..TABLE.len(), 0..TABLE.len()),
        declared in any::<bool>(),
    ) {
        let mut initiator = Negotiation::new(Role::Initiator, SessionType::Normal, ours.clone());
        let mut target = Negotiation::new(Role::Target, SessionType::Normal, theirs.clone());
        let mut initiators_ledger = Ledger::new(Role::Target);
        let mut targets_ledger = Ledger::new(Role::Initiator);
        let mut out = TextWriter::new();
        for index in offered {
            let key = TABLE[index].key;
            if key != Key::MaxRecvDataSegmentLength && ours.of(key).is_some() {
                initiator.propose(key, &mut initiators_ledger, &mut out);
            }
        }
        if declared {
            initiator.declare_segment_length(&mut initiators_ledger, &mut out);
        }
        let Ok(mut out) = exchange(&mut target, &mut targets_ledger, out) else {
            // Only digests can fail to suit both.
            let clash = |ours: DigestPolicy, theirs: DigestPolicy| {
                !ours.choices().iter().any(|choice| theirs.choices().contains(choice))
            };
            let clashes = clash(ours.header_digest, theirs.header_digest)
                || clash(ours.data_digest, theirs.data_digest);
            prop_assert!(clashes);
            return Ok(());
        };
        target.declare_segment_length(&mut targets_ledger, &mut out);
        let out = exchange(&mut initiator, &mut initiators_ledger, out).unwrap();
        prop_assert!(out.is_empty());
        prop_assert!(!initiator.is_waiting());
        match (initiator.conclude(), target.conclude()) {
            (Ok(initiators), Ok(targets)) => {
                prop_assert_eq!(&initiators, &targets);
                prop_assert!(initiators.first_burst_length <= initiators.max_burst_length);
            }
            // A required digest that nobody offered.
            (initiators, targets) => prop_assert!(
                matches!(initiators, Err(NegotiationError::RequirementNotMet(_)))
                    || matches!(targets, Err(NegotiationError::RequirementNotMet(_)))
            ),
        }
    }

    #[test]
    fn what_is_selected_is_admissible_to_the_proposer(
        ours in preferences(),
        theirs in preferences(),
        index in 0..TABLE.len(),
    ) {
        let key = TABLE[index].key;
        let rule = key.definition().rule;
        if let (Some(offer), Some(preference)) = (ours.of(key), theirs.of(key))
            && let Selection::Value(value) = select(rule, preference, &offer.to_string())
        {
            let checked = check_selection(rule, offer, &value.to_string());
            prop_assert_eq!(checked, Some(value));
        }
    }

    #[test]
    fn no_text_panics_a_negotiation(
        pairs in prop::collection::vec((0..TABLE.len(), "[0-9a-zA-Z,~]{0,12}|Yes|No|0|4096"), 0..8),
    ) {
        let (mut negotiation, mut ledger) = target();
        let mut admitted = Vec::new();
        for (index, value) in &pairs {
            let key = TABLE[*index].key;
            if ledger.admit(key, value, Phase::Operational).is_ok() {
                admitted.push((key, value.as_str()));
            }
        }
        if negotiation.receive(&admitted, &mut TextWriter::new()).is_ok() {
            let parameters = negotiation.conclude().unwrap();
            prop_assert!(parameters.first_burst_length <= parameters.max_burst_length);
            prop_assert!(parameters.max_burst_length >= 512);
        }
    }
}
