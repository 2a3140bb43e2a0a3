//! Target connections that are told nearly anything, and a driver that does what a driver may do.

use longshore_iscsi::initiator;
use longshore_iscsi::initiator::login::LoginConfig;
use longshore_iscsi::name::IscsiName;
use longshore_iscsi::pdu::{
    BHS_LENGTH, Bhs, CmdSn, InitiatorTaskTag, Isid, LoginStatus, Opcode, TargetTransferTag, Tsih,
    padding,
};
use longshore_iscsi::server::directory::{
    Authentication, ChapAccount, ChapAuthentication, Directory, LoginConfig as TargetLoginConfig,
    LoginRefusal, PortalAddress, PortalRecord, SessionRequest, TargetLogin, TargetRecord,
};
use longshore_iscsi::server::{
    Completion, Connection, ConnectionConfig, ConnectionEvent, Payload, TaskId,
    TaskManagementResult,
};
use longshore_iscsi::session_parameters::{Digest, PortalGroupTag};
use longshore_wire::transmit::{PayloadId, Segment, Transmit};

use crate::input::Input;

pub(super) const TARGET: &str = "iqn.2026-11.local.longshore:fuzz";
pub(super) const INITIATOR: &str = "iqn.2026-11.local.longshore:fuzzer";

/// One target, and everybody may enter, or who knows a secret.
pub(super) struct World {
    authentication: Authentication,
}

fn name(text: &str) -> IscsiName {
    IscsiName::parse(text).expect("a valid name")
}

impl World {
    pub(super) fn open() -> Self {
        Self {
            authentication: Authentication::none(),
        }
    }

    fn guarded() -> Self {
        let account = |name: &str, secret: &str| ChapAccount {
            name: name.to_owned(),
            secret: secret.into(),
        };
        let chap = ChapAuthentication {
            accounts: vec![account("fuzz", "a secret of fuzz")],
            mutual: Some(account("target", "a secret of target")),
            algorithms: Vec::new(),
        };
        Self {
            authentication: Authentication::chap_required(chap),
        }
    }
}

impl Directory for World {
    fn discovery_authentication(&self, _: &IscsiName) -> Authentication {
        self.authentication.clone()
    }

    fn target_login(&self, _: &IscsiName, target: &str) -> Result<TargetLogin, LoginRefusal> {
        if target != TARGET {
            return Err(LoginStatus::NOT_FOUND.into());
        }
        Ok(TargetLogin {
            name: name(TARGET),
            portal_group_tag: PortalGroupTag(1),
            authentication: self.authentication.clone(),
            config: TargetLoginConfig {
                max_recv_data_segment_length: 4096,
                first_burst_length: 4096,
                max_burst_length: 8192,
                ..TargetLoginConfig::default()
            },
        })
    }

    fn visible_targets(&self, _: &IscsiName) -> Vec<TargetRecord> {
        let portal = PortalRecord {
            address: PortalAddress("192.0.2.1:3260".to_owned()),
            portal_group_tag: PortalGroupTag(1),
        };
        vec![TargetRecord {
            name: name(TARGET),
            portals: vec![portal],
        }]
    }

    fn establish(&mut self, _: SessionRequest<'_>) -> Result<Tsih, LoginStatus> {
        Ok(Tsih(7))
    }

    fn random(&mut self, bytes: &mut [u8]) {
        bytes.fill(0x5a);
    }
}

/// A target and the driver that its documentation asks for.
pub(super) struct Target {
    machine: Connection,
    world: World,
    pub(super) transmit: Transmit,
    now_ms: u64,
    closed: bool,
    waiting: Vec<TaskId>,
}

impl Target {
    pub(super) fn new(world: World) -> Self {
        let config = ConnectionConfig {
            queue_depth: 8,
            ..ConnectionConfig::default()
        };
        Self {
            machine: Connection::new(config, 0),
            world,
            transmit: Transmit::new(),
            now_ms: 0,
            closed: false,
            waiting: Vec::new(),
        }
    }

    /// With an initiator that has logged in, offering what `input` says.
    fn logged_in(input: &mut Input<'_>) -> (Self, initiator::Connection, Transmit) {
        let isid = Isid([0x80, 0, 0, 0, 0, 1]);
        let mut login = LoginConfig::normal(name(INITIATOR), name(TARGET), isid);
        login.cmd_sn = CmdSn(100);
        login.preferences.initial_r2t = input.byte() & 1 != 0;
        login.preferences.immediate_data = input.byte() & 1 == 0;
        let mut target = Self::new(World::open());
        let mut transmit = Transmit::new();
        let mut initiator =
            initiator::Connection::new(login, 8, &mut |bytes| bytes.fill(1), &mut transmit);
        while initiator.session().is_none() {
            target.feed(&drain(&mut transmit), &mut Input(&[]));
            let answer = drain(&mut target.transmit);
            assert!(!answer.is_empty(), "a good login goes on");
            let mut bytes = &answer[..];
            while initiator.next(&mut bytes, &mut transmit) != initiator::ConnectionEvent::NeedMore
            {
            }
        }
        (target, initiator, transmit)
    }

    pub(super) fn feed(&mut self, mut bytes: &[u8], input: &mut Input<'_>) {
        while !self.closed {
            let event =
                self.machine
                    .next(&mut bytes, &mut self.world, &mut self.transmit, self.now_ms);
            match event {
                ConnectionEvent::NeedMore => return,
                ConnectionEvent::Established => {}
                ConnectionEvent::Command(command) => {
                    let expected = u64::from(command.expected_data_transfer_length);
                    match input.byte() % 5 {
                        0 if command.write => self.machine.want_data_out(
                            command.task,
                            expected.min(16_384),
                            &mut self.transmit,
                        ),
                        1 => self.read_inline(command.task, input),
                        2 => self.waiting.push(command.task),
                        _ => self.complete(command.task, input),
                    }
                }
                ConnectionEvent::DataOut {
                    buffer_offset,
                    bytes,
                    ..
                } => {
                    assert!(
                        buffer_offset
                            .checked_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX))
                            .is_some()
                    );
                }
                ConnectionEvent::DataOutComplete { task }
                | ConnectionEvent::DataOutFailed { task, .. } => {
                    self.waiting.retain(|waiting| *waiting != task);
                    self.complete(task, input);
                }
                ConnectionEvent::TaskManagement(request) => {
                    if let Some(task) = request.referenced_task {
                        self.waiting.retain(|waiting| *waiting != task);
                        self.machine.abort(task);
                    }
                    let result = TaskManagementResult::FunctionComplete;
                    self.machine
                        .task_management_done(request.id, result, &mut self.transmit);
                }
                ConnectionEvent::Close(_) => self.closed = true,
            }
        }
    }

    fn read_inline(&mut self, task: TaskId, input: &mut Input<'_>) {
        let length = input.word() % 20_000;
        match self
            .machine
            .begin_inline_read(task, length, &mut self.transmit)
        {
            Some(place) => {
                place.fill(1);
                if input.byte() & 1 == 0 {
                    return self.machine.commit_inline_read(task, &mut self.transmit);
                }
                self.machine.rollback_inline_read(task, &mut self.transmit);
                self.complete(task, input);
            }
            None => self.complete(task, input),
        }
    }

    fn complete(&mut self, task: TaskId, input: &mut Input<'_>) {
        let bytes = vec![1; usize::from(input.byte()) * 40];
        let data_in = match input.byte() % 4 {
            0 => Payload::None,
            1 => Payload::Zeros(input.word() % 20_000),
            2 => Payload::Bytes(&bytes),
            _ => Payload::Buffer {
                id: PayloadId(1),
                bytes: &bytes,
            },
        };
        let status = input.pick(&[0, 0, 0, 2, 8, 0x18, 0x28]);
        let completion = Completion {
            status,
            sense: if status == 2 { &[0x70; 18] } else { &[] },
            data_in,
            scsi_length: data_in.len() as u64 + u64::from(input.byte()),
        };
        self.machine.complete(task, completion, &mut self.transmit);
    }

    /// What else a driver does between two receives.
    fn turn(&mut self, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0 => self.now_ms += u64::from(input.byte()) * 1000,
            1 if !self.closed => {
                if let Some(task) = self.waiting.pop() {
                    self.complete(task, input);
                }
            }
            2 if !self.closed => {
                if let Some(task) = self.waiting.pop() {
                    self.machine.abort(task);
                }
            }
            3 if !self.closed && self.machine.session().is_some() => {
                self.machine.request_logout(&mut self.transmit, self.now_ms);
            }
            _ => {}
        }
        if self
            .machine
            .next_deadline_ms()
            .is_some_and(|at| at <= self.now_ms)
            && self
                .machine
                .handle_deadline(&mut self.transmit, self.now_ms)
                .is_some()
        {
            self.closed = true;
        }
        let digests = self.machine.session().map_or([Digest::None; 2], |session| {
            [
                session.operational.header_digest,
                session.operational.data_digest,
            ]
        });
        check_stream(&drain(&mut self.transmit), digests);
    }
}

/// All that is queued. Payload by reference counts as zeros.
pub(crate) fn drain(transmit: &mut Transmit) -> Vec<u8> {
    let mut stream = Vec::new();
    for segment in transmit.segments() {
        match segment {
            Segment::Arena { start, length } => {
                stream.extend_from_slice(&transmit.arena()[start..start + length]);
            }
            Segment::Zeros { length } | Segment::Buffer { length, .. } => {
                stream.resize(stream.len() + length, 0);
            }
        }
    }
    assert_eq!(stream.len(), transmit.pending_bytes());
    transmit.advance(stream.len(), &mut Vec::new());
    stream
}

/// Whole PDUs that only a target sends. Digests of header and data follow once the login is over.
fn check_stream(mut stream: &[u8], digests: [Digest; 2]) {
    while let Some((header, rest)) = stream.split_first_chunk::<BHS_LENGTH>() {
        let bhs = Bhs(*header);
        assert!(bhs.opcode().0 & 0x20 != 0, "{:?}", bhs.opcode());
        let length = bhs.data_segment_length() as usize;
        let digest = |which: usize| match digests[which] {
            Digest::Crc32c if bhs.opcode() != Opcode::LOGIN_RESPONSE => 4,
            _ => 0,
        };
        let data_digest = if length > 0 { digest(1) } else { 0 };
        stream = rest
            .get(digest(0) + length + padding(length) + data_digest..)
            .expect("a PDU is queued as a whole");
    }
    assert!(stream.is_empty(), "half a header is queued");
}

/// A PDU with the right lengths.
fn push(stream: &mut Vec<u8>, mut bhs: Bhs, data: &[u8]) {
    bhs.set_data_segment_length(u32::try_from(data.len()).unwrap_or(0));
    stream.extend(bhs.0);
    stream.extend(data);
    stream.resize(stream.len() + padding(data.len()), 0);
}

/// A login: requests with flags, tags and keys of the fuzzer's choice.
pub(crate) fn login_conversations(data: &[u8]) {
    const KEYS: &[&str] = &[
        "InitiatorName=iqn.2026-11.local.longshore:fuzzer\0",
        "TargetName=iqn.2026-11.local.longshore:fuzz\0",
        "SessionType=Normal\0",
        "SessionType=Discovery\0",
        "AuthMethod=CHAP,None\0",
        "AuthMethod=None\0",
        "CHAP_A=5,7\0",
        "CHAP_N=fuzz\0CHAP_R=0x00112233445566778899aabbccddeeff\0",
        "CHAP_I=1\0CHAP_C=0x0123456789abcdef\0",
        "HeaderDigest=CRC32C,None\0",
        "MaxRecvDataSegmentLength=512\0",
        "InitialR2T=Yes\0ImmediateData=No\0",
        "FirstBurstLength=100\0MaxBurstLength=16777216\0",
        "MaxConnections=9\0ErrorRecoveryLevel=2\0",
        "OFMarker=Yes\0IFMarkInt=1~5\0X-com.example=1\0",
    ];
    let mut input = Input(data);
    let world = if input.byte() & 1 == 0 {
        World::open()
    } else {
        World::guarded()
    };
    let mut target = Target::new(world);
    while !input.is_empty() && !target.closed {
        let mut bhs = Bhs::new(Opcode::LOGIN_REQUEST);
        bhs.0[0] |= 0x40;
        bhs.0[1] = input.pick(&[0x00, 0x01, 0x04, 0x05, 0x81, 0x83, 0x87, 0x40, 0x41, 0x44]);
        if input.byte() == 0 {
            bhs.0[1..].copy_from_slice(&input.array::<47>());
        }
        let mut text = Vec::new();
        for _ in 0..input.byte() % 6 {
            let key = input.byte();
            match KEYS.get(usize::from(key)) {
                Some(key) => text.extend(key.as_bytes()),
                None if key & 1 == 0 => text.extend(input.piece()),
                None => text.extend(KEYS[usize::from(key) % KEYS.len()].as_bytes()),
            }
        }
        let mut stream = Vec::new();
        push(&mut stream, bhs, &text);
        target.feed(&stream, &mut input);
        target.turn(&mut input);
    }
}

/// A session, and then requests that are nearly right.
pub(crate) fn pdu_sequences(data: &[u8]) {
    const OPCODES: [Opcode; 8] = [
        Opcode::SCSI_COMMAND,
        Opcode::SCSI_COMMAND,
        Opcode::DATA_OUT,
        Opcode::DATA_OUT,
        Opcode::TASK_MANAGEMENT_REQUEST,
        Opcode::NOP_OUT,
        Opcode::TEXT_REQUEST,
        Opcode::LOGOUT_REQUEST,
    ];
    let mut input = Input(data);
    let (mut target, ..) = Target::logged_in(&mut input);
    let mut cmd_sn = 100_u32;
    let mut transfer_tag = TargetTransferTag::RESERVED;
    while !input.is_empty() && !target.closed {
        let mut bhs = Bhs::new(input.pick(&OPCODES));
        let flags = input.byte();
        bhs.0[0] |= flags & 0x40;
        bhs.0[1] = input.byte();
        let set = |bhs: &mut Bhs, at: usize, value: u32| {
            bhs.0[at..at + 4].copy_from_slice(&value.to_be_bytes());
        };
        // Few tags, so that they meet.
        let tag = InitiatorTaskTag(u32::from(input.byte() & 7));
        set(&mut bhs, 16, tag.0);
        let number = match input.byte() {
            0 => input.word(),
            1 => cmd_sn.wrapping_add(u32::from(input.byte() & 7)),
            _ => cmd_sn,
        };
        match bhs.opcode() {
            Opcode::SCSI_COMMAND => {
                set(&mut bhs, 20, input.word() & 0x7fff);
                bhs.0[32..].copy_from_slice(&input.array::<16>());
            }
            Opcode::DATA_OUT => {
                let tag = if flags & 1 == 0 {
                    transfer_tag
                } else {
                    TargetTransferTag::RESERVED
                };
                set(&mut bhs, 20, tag.0);
                set(&mut bhs, 36, u32::from(input.byte() & 3));
                set(&mut bhs, 40, input.word() & 0x3fff);
            }
            Opcode::TASK_MANAGEMENT_REQUEST => {
                bhs.0[1] = 0x80 | (input.byte() % 12);
                set(&mut bhs, 20, u32::from(input.byte() & 7));
                set(
                    &mut bhs,
                    32,
                    cmd_sn.wrapping_sub(u32::from(input.byte() & 7)),
                );
            }
            _ => set(&mut bhs, 20, u32::MAX),
        }
        if bhs.opcode() != Opcode::DATA_OUT {
            set(&mut bhs, 24, number);
            if number == cmd_sn && !bhs.immediate() {
                cmd_sn = cmd_sn.wrapping_add(1);
            }
        }
        let repeats = usize::from(input.byte() & 15);
        let data = input.piece().repeat(1 + repeats);
        let mut stream = Vec::new();
        push(&mut stream, bhs, &data);
        target.feed(&stream, &mut input);
        for sent in pdus(&drain_copy(&target.transmit)) {
            if sent.opcode() == Opcode::R2T {
                let tag = sent.0[20..24].first_chunk().copied().unwrap_or_default();
                transfer_tag = TargetTransferTag(u32::from_be_bytes(tag));
            }
        }
        if !target.closed {
            target.turn(&mut input);
        }
    }
}

fn drain_copy(transmit: &Transmit) -> Vec<u8> {
    let mut stream = Vec::new();
    for segment in transmit.segments() {
        match segment {
            Segment::Arena { start, length } => {
                stream.extend_from_slice(&transmit.arena()[start..start + length]);
            }
            other => stream.resize(stream.len() + other.length(), 0),
        }
    }
    stream
}

fn pdus(mut stream: &[u8]) -> Vec<Bhs> {
    let mut found = Vec::new();
    while let Some((header, rest)) = stream.split_first_chunk::<BHS_LENGTH>() {
        let bhs = Bhs(*header);
        let length = bhs.data_segment_length() as usize;
        stream = rest.get(length + padding(length)..).unwrap_or_default();
        found.push(bhs);
    }
    found
}
