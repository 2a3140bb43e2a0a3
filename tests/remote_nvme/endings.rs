//! Calls after the end of a connection. The call that meets an early end returns an error, and so does
//! every later call.

use longshore_initiator::error::Error;
use longshore_initiator::nvme::{Admin, discover};
use longshore_initiator::url::HostPort;
use longshore_nvme::host::commands::Property;
use longshore_nvme::nqn::Nqn;
use longshore_nvme::opcode::{admin, fabrics};
use longshore_nvme::pdu::{
    Digests, FatalError, FatalErrorStatus, IcResp, R2t, TermReq, Terminator, TransferTag,
};

use crate::fake::{Answer, Arrived, Fake};
use crate::faults::{NQN, contains, options, refusal};

/// CAP of a controller with Controller Ready Timeouts: CRMS.CRWMS, and the fake's usual bits.
const CAPABILITIES: u64 = 1 << 59 | 1 << 37 | 1 << 24 | 1023;

/// Offset of CRTO among the properties.
const READY_TIMEOUTS: u32 = 0x68;

fn is_property_get(arrived: &Arrived, offset: u32) -> bool {
    arrived.is_fabrics(fabrics::PROPERTY_GET) && arrived.entry.dword(11) == offset
}

/// PDUs that end a connection, and the words for it in the host's error.
fn endings() -> Vec<(&'static str, Vec<u8>)> {
    let error = FatalError::plain(FatalErrorStatus::PDU_SEQUENCE_ERROR);
    let by = Terminator::Controller;
    let terminated = TermReq { by, error }.encode(0).to_vec();
    let icresp = IcResp {
        pfv: 0,
        cpda: 0,
        digests: Digests::default(),
        max_h2c_data: 8192,
    };
    let r2t = R2t {
        command: longshore_nvme::command::CommandId(0x7fff),
        tag: TransferTag(1),
        offset: 0,
        length: 512,
    };
    // Only hosts send command capsules.
    let mut command = terminated.clone();
    command[0] = 0x04;
    vec![
        ("PDU sequence error", terminated),
        ("PDU sequence error", icresp.encode().to_vec()),
        ("broke", r2t.encode().to_vec()),
        ("broke", command),
        ("closed", Vec::new()),
    ]
}

fn ended_by(pdu: &[u8]) -> Answer {
    if pdu.is_empty() {
        Answer::HangUp
    } else {
        Answer::Raw(pdu.to_vec())
    }
}

#[test]
fn a_connection_that_ends_at_the_ready_timeouts_is_an_error() {
    for (expected, pdu) in endings() {
        let text = refusal(move |arrived| {
            if is_property_get(arrived, 0) {
                Some(Answer::success(CAPABILITIES))
            } else {
                is_property_get(arrived, READY_TIMEOUTS).then(|| ended_by(&pdu))
            }
        });
        contains(&text, "Property Get");
        contains(&text, expected);
    }
}

#[test]
fn ready_timeouts_that_are_refused_are_gone_without() {
    let fake = Fake::new(|arrived| {
        if is_property_get(arrived, 0) {
            Some(Answer::success(CAPABILITIES))
        } else {
            let status = longshore_nvme::status::Status::INVALID_FIELD.do_not_retry();
            is_property_get(arrived, READY_TIMEOUTS).then_some(Answer::End(status, 0))
        }
    });
    let mut admin = admin(fake).expect("CAP says enough");
    assert!(admin.identify_controller().is_ok());
    assert!(admin.shut_down());
}

fn admin(fake: Fake) -> Result<Admin, Error> {
    let portal = HostPort::from(fake.start());
    let subsystem = Nqn::new(NQN).expect("a name");
    Admin::connect(&portal, &subsystem, options().nvme.keep_alive, &options())
}

/// Every call, and a shutdown at last.
#[test]
fn after_the_end_every_call_is_an_error_and_so_is_the_shutdown() {
    for (_, pdu) in endings() {
        let fake = Fake::new(move |arrived| arrived.is_identify(1).then(|| ended_by(&pdu)));
        let mut admin = admin(fake).expect("it begins well");
        assert!(admin.identify_controller().is_err());
        for _ in 0..40 {
            assert!(admin.property(Property::CSTS).is_err());
        }
        assert!(admin.set_property(Property::CC, 0).is_err());
        assert!(admin.active_namespaces().is_err());
        assert!(admin.log_page(2, 0, 0, 512).is_err());
        assert!(!admin.shut_down(), "nothing is confirmed");
    }
}

#[test]
fn discovery_that_ends_early_is_an_error() {
    for (_, pdu) in endings() {
        let fake = Fake::new(move |arrived| {
            arrived
                .is_admin(admin::GET_LOG_PAGE)
                .then(|| ended_by(&pdu))
        });
        let portal = HostPort::from(fake.start());
        assert!(discover(&portal, &options()).is_err());
    }
}
