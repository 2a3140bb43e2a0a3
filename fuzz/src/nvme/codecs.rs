//! Decoders: what comes out of them goes back in.

use longshore_nvme::command::SubmissionEntry;
use longshore_nvme::completion::CompletionEntry;
use longshore_nvme::nqn::{NQN_FIELD_LENGTH, Nqn};
use longshore_nvme::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, CommonHeader, Flags, H2cData, IcReq, IcResp, PduType, R2t,
    TermReq,
};
use longshore_nvme::sgl::SglDescriptor;

use crate::input::Input;

/// One input as each header, entry and name there is.
pub(crate) fn nvme_headers(data: &[u8]) {
    let mut input = Input(data);
    let header: [u8; 128] = input.array();
    macro_rules! settles {
        ($($pdu:ident: $type:ident),* $(,)?) => {$(
            let mut bytes = *header.first_chunk().expect("no header is longer");
            // A machine decodes by type.
            bytes[0] = PduType::$type.0;
            let decoded = $pdu::decode(&bytes);
            assert_eq!($pdu::decode(&decoded.encode()), decoded);
        )*};
    }
    settles!(
        C2hData: C2H_DATA,
        CapsuleCmd: CAPSULE_CMD,
        CapsuleResp: CAPSULE_RESP,
        H2cData: H2C_DATA,
        IcReq: IC_REQ,
        IcResp: IC_RESP,
        R2t: R2T,
    );
    for pdu_type in [PduType::H2C_TERM_REQ, PduType::C2H_TERM_REQ] {
        let mut bytes = *header.first_chunk().expect("no header is longer");
        bytes[0] = pdu_type.0;
        let decoded = TermReq::decode(&bytes);
        let length = usize::from(header[64]).min(TermReq::DATA_LENGTH_MAX);
        assert_eq!(TermReq::decode(&decoded.encode(length)), decoded);
    }
    common_header(&header);
    entries(&header);
    name(&mut input);
}

/// Wherever the data of a PDU are found, they are within it.
fn common_header(header: &[u8; 128]) {
    let common = CommonHeader::decode(header);
    let mut again = [0; CommonHeader::LENGTH];
    common.encode_into(&mut again);
    assert_eq!(CommonHeader::decode(&again), common);
    for data_digest in [false, true] {
        let header_digest = common.flags.contains(Flags::HDGSTF);
        if common.check_header(header_digest).is_err() {
            continue;
        }
        let alignment = (u32::from(header[127]) % 32 + 1) * 4;
        if let Ok(layout) = common.layout(data_digest, alignment) {
            let digest = if layout.has_digest { 4 } else { 0 };
            let data = u64::from(layout.lead) + u64::from(layout.length) + digest;
            assert_eq!(
                u64::from(common.header_end()) + data,
                u64::from(common.plen)
            );
        }
    }
}

fn entries(header: &[u8; 128]) {
    let entry = SubmissionEntry(*header.first_chunk().expect("an entry is shorter"));
    let mut again = entry;
    again.set_id(entry.id());
    again.set_fuse(entry.fuse());
    assert_eq!(again, entry);
    let sgl = entry.sgl();
    assert_eq!(SglDescriptor::decode(sgl.encode()), sgl);
    let completion = CompletionEntry::decode(header.first_chunk().expect("an entry is shorter"));
    assert_eq!(CompletionEntry::decode(&completion.encode()), completion);
    let _ = format!("{entry:?} {:?} {completion:?}", entry.data_pointer_kind());
}

fn name(input: &mut Input<'_>) {
    let mut field = [0; NQN_FIELD_LENGTH];
    let text = input.take(NQN_FIELD_LENGTH);
    field[..text.len()].copy_from_slice(text);
    if let Ok(name) = Nqn::from_field(&field) {
        assert_eq!(Nqn::from_field(&name.to_field()).as_ref(), Ok(&name));
    }
    let _ = std::str::from_utf8(text).map(Nqn::new);
}
