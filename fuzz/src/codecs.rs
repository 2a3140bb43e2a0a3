//! Decoders: whatever they take they give back, and what they refuse they refuse without a panic.

use longshore_block::reservation::ReservationTable;
use longshore_iscsi::chap::{format_binary_value, parse_binary_value};
use longshore_iscsi::name::IscsiName;
use longshore_iscsi::pdu::{
    AdditionalHeaders, AsyncMessage, BHS_LENGTH, Bhs, DataIn, DataOut, LoginRequest, LoginResponse,
    LogoutRequest, LogoutResponse, NopIn, NopOut, R2t, Reject, ScsiCommand, ScsiResponse,
    SnackRequest, TaskManagementRequest, TaskManagementResponse, TextRequest, TextResponse,
};
use longshore_iscsi::text;

/// Decodes a header as each PDU there is: what comes out encodes to a header that decodes to the
/// same again.
pub fn headers(input: &[u8]) {
    let Some((header, rest)) = input.split_first_chunk::<BHS_LENGTH>() else {
        return;
    };
    let mut bhs = Bhs(*header);
    macro_rules! settles {
        ($($pdu:ty),* $(,)?) => {$(
            // A machine decodes by opcode; the I bit may be set.
            bhs.0[0] = bhs.0[0] & 0x40 | <$pdu>::OPCODE.0;
            let decoded = <$pdu>::decode(&bhs);
            assert_eq!(<$pdu>::decode(&decoded.encode()), decoded);
        )*};
    }
    settles!(
        AsyncMessage,
        DataIn,
        DataOut,
        LoginRequest,
        LoginResponse,
        LogoutRequest,
        LogoutResponse,
        NopIn,
        NopOut,
        R2t,
        Reject,
        ScsiCommand,
        ScsiResponse,
        SnackRequest,
        TaskManagementRequest,
        TaskManagementResponse,
        TextRequest,
        TextResponse,
    );
    if let Ok(additional) = AdditionalHeaders::decode(rest) {
        let encoded = additional.encode();
        assert_eq!(
            AdditionalHeaders::decode(&encoded).expect("our own"),
            additional
        );
    }
}

/// Text keys, numbers, binary values, and names.
pub fn texts(input: &[u8]) {
    if let Ok(pairs) = text::parse(input) {
        let mut writer = text::TextWriter::new();
        for pair in &pairs {
            writer.push(pair.key, pair.value);
        }
        let written = writer.into_bytes();
        assert_eq!(text::parse(&written).expect("our own"), pairs);
    }
    let Ok(input) = std::str::from_utf8(input) else {
        return;
    };
    let _ = text::parse_number(input);
    if let Ok(bytes) = parse_binary_value(input) {
        assert_eq!(parse_binary_value(&format_binary_value(&bytes)), Ok(bytes));
    }
    if let Ok(name) = IscsiName::parse(input) {
        assert_eq!(IscsiName::parse(name.as_str()).expect("normalised"), name);
    }
    let _ = IscsiName::from_peer(input);
}

/// The file that keeps reservations over a restart.
pub fn stored_reservations(input: &[u8]) {
    if let Ok(table) = ReservationTable::from_bytes(input) {
        let written = table.to_bytes();
        let again = ReservationTable::from_bytes(&written).expect("our own");
        assert_eq!(again.to_bytes(), written);
    }
}
