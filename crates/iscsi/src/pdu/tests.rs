//! Properties every PDU has, and byte-exact examples.

use super::*;
use proptest::prelude::*;

/// What `pdu!` makes of a table.
pub(crate) trait Header: Sized {
    fn decode(bhs: &Bhs) -> Self;
    fn encode(&self) -> Bhs;
}

fn round_trips<H: Header + PartialEq + std::fmt::Debug>(header: &H) {
    assert_eq!(&H::decode(&header.encode()), header);
}

proptest! {
    #[test]
    fn every_pdu_decodes_what_it_encodes(
        login_request: LoginRequest,
        login_response: LoginResponse,
    ) {
        round_trips(&login_request);
        round_trips(&login_response);
    }
}
