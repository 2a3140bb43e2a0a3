//! A controller whose answers are written by hand, for what no honest one does.
//!
//! It knows ICReq, Connect and properties; a test decides the rest by a function from a command to an answer. Each
//! connection has a thread, which ends with the connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use longshore_nvme::command::SubmissionEntry;
use longshore_nvme::completion::CompletionEntry;
use longshore_nvme::opcode::{self, admin};
use longshore_nvme::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, CommonHeader, Digests, IcReq, IcResp, R2t, TransferTag,
};
use longshore_nvme::sgl::SglDescriptor;
use longshore_nvme::status::Status;

/// What becomes of a command.
pub enum Answer {
    /// An end without data.
    End(Status, u64),
    /// Data, as much of it as the command asks for, and success.
    Data(Vec<u8>),
    /// Just so many bytes of data, and success.
    Short(Vec<u8>),
    /// Bytes that need not be a PDU.
    Raw(Vec<u8>),
    Nothing,
    HangUp,
}

impl Answer {
    pub fn success(result: u64) -> Self {
        Self::End(Status::SUCCESS, result)
    }
}

/// A command that has come: which queue, its entry, its data.
pub struct Arrived {
    pub queue: u16,
    pub entry: SubmissionEntry,
    pub data: Vec<u8>,
}

impl Arrived {
    /// Whether it is Identify with this CNS.
    pub fn is_identify(&self, cns: u32) -> bool {
        self.queue == 0
            && self.entry.opcode() == admin::IDENTIFY
            && self.entry.dword(10) & 0xff == cns
    }

    /// Whether it is Get Log Page of this page.
    pub fn is_log_page(&self, page: u32) -> bool {
        self.queue == 0
            && self.entry.opcode() == admin::GET_LOG_PAGE
            && self.entry.dword(10) & 0xff == page
    }

    pub fn is_admin(&self, opcode: opcode::Opcode) -> bool {
        self.queue == 0 && self.entry.opcode() == opcode
    }

    pub fn is_fabrics(&self, kind: u8) -> bool {
        self.entry.opcode() == opcode::FABRICS && self.entry.fabrics_type() == kind
    }
}

type Script = dyn FnMut(&Arrived) -> Option<Answer> + Send;

/// How it behaves apart from the script.
pub struct Fake {
    script: Arc<Mutex<Script>>,
    response: IcResp,
    /// Blocks of the one namespace.
    blocks: u64,
    /// IOCCSZ, in units of 16 bytes.
    capsule_units: u32,
}

impl Fake {
    /// One that does what a controller should, unless the script says otherwise.
    pub fn new(script: impl FnMut(&Arrived) -> Option<Answer> + Send + 'static) -> Self {
        Self {
            script: Arc::new(Mutex::new(script)),
            response: IcResp {
                pfv: 0,
                cpda: 0,
                digests: Digests::default(),
                max_h2c_data: 8192,
            },
            blocks: 1 << 20,
            capsule_units: (64 + 8192) / 16,
        }
    }

    pub fn response(mut self, response: IcResp) -> Self {
        self.response = response;
        self
    }

    /// Only commands fit into capsules.
    pub fn without_in_capsule_data(mut self) -> Self {
        self.capsule_units = 4;
        self
    }

    /// Starts it; where it listens.
    pub fn start(self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(self);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                // It ends with the connection, however that comes.
                thread::spawn(move || Association::serve(&shared, stream).ok());
            }
        });
        address
    }
}

struct Association<'a> {
    fake: &'a Fake,
    stream: TcpStream,
    queue: u16,
    configuration: u64,
}

impl<'a> Association<'a> {
    fn serve(fake: &'a Fake, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut association = Self {
            fake,
            stream,
            queue: 0,
            configuration: 0,
        };
        let mut request = [0; IcReq::LENGTH];
        association.stream.read_exact(&mut request)?;
        association.stream.write_all(&fake.response.encode())?;
        while association.command()? {}
        Ok(())
    }

    /// Takes one command; whether the connection goes on.
    fn command(&mut self) -> io::Result<bool> {
        let mut header = [0; CapsuleCmd::LENGTH];
        self.stream.read_exact(&mut header)?;
        let common = CommonHeader::decode(&header);
        let entry = CapsuleCmd::decode(&header).entry;
        let mut data = vec![0; common.plen as usize - CapsuleCmd::LENGTH];
        self.stream.read_exact(&mut data)?;
        let arrived = Arrived {
            queue: self.queue,
            entry,
            data,
        };
        let scripted = (self.fake.script.lock().unwrap())(&arrived);
        match scripted.unwrap_or_else(|| self.honest(&arrived)) {
            Answer::Nothing => {}
            Answer::HangUp => return Ok(false),
            Answer::Raw(bytes) => self.stream.write_all(&bytes)?,
            Answer::End(status, result) => self.end(&entry, status, result)?,
            Answer::Data(mut bytes) => {
                bytes.resize(entry.sgl().length() as usize, 0);
                self.send(&entry, &bytes)?;
                self.end(&entry, Status::SUCCESS, 0)?;
            }
            Answer::Short(bytes) => {
                if !bytes.is_empty() {
                    self.send(&entry, &bytes)?;
                }
                self.end(&entry, Status::SUCCESS, 0)?;
            }
        }
        Ok(true)
    }

    fn end(&mut self, entry: &SubmissionEntry, status: Status, result: u64) -> io::Result<()> {
        let entry = CompletionEntry {
            result,
            sq_head: 0,
            id: entry.id(),
            status,
        };
        self.stream.write_all(&CapsuleResp { entry }.encode())
    }

    fn send(&mut self, entry: &SubmissionEntry, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).unwrap();
        let mut header = C2hData {
            last: true,
            success: false,
            command: entry.id(),
            offset: 0,
            length,
        }
        .encode();
        let mut common = CommonHeader::decode(&header);
        common.pdo = 24;
        common.plen = 24 + length;
        common.encode_into(&mut header);
        self.stream.write_all(&header)?;
        self.stream.write_all(bytes)
    }

    /// What a controller should answer.
    fn honest(&mut self, arrived: &Arrived) -> Answer {
        let entry = &arrived.entry;
        if entry.opcode() == opcode::FABRICS {
            return self.fabrics(entry);
        }
        if self.queue > 0 {
            return self.io(entry);
        }
        match entry.opcode() {
            admin::IDENTIFY => Answer::Data(self.identify(entry.dword(10) & 0xff)),
            admin::ASYNC_EVENT_REQUEST => Answer::Nothing,
            admin::SET_FEATURES => Answer::success(0x0003_0003),
            _ => Answer::success(0),
        }
    }

    fn fabrics(&mut self, entry: &SubmissionEntry) -> Answer {
        match entry.fabrics_type() {
            opcode::fabrics::CONNECT => {
                let dword = entry.dword(10);
                self.queue = u16::try_from(dword >> 16).unwrap();
                Answer::success(1)
            }
            opcode::fabrics::PROPERTY_SET => {
                self.configuration = entry.qword(12);
                Answer::success(0)
            }
            opcode::fabrics::PROPERTY_GET => {
                let shut_down = self.configuration >> 14 & 3 != 0;
                Answer::success(match entry.dword(11) {
                    // CAP: 1024 entries, half a second, the NVM command set.
                    0 => 1 << 37 | 1 << 24 | 1023,
                    8 => 0x0001_0400,
                    0x14 => self.configuration,
                    0x1c => self.configuration & 1 | u64::from(shut_down) << 3,
                    _ => 0,
                })
            }
            _ => Answer::success(0),
        }
    }

    fn identify(&self, cns: u32) -> Vec<u8> {
        let mut page = vec![0; 4096];
        match cns {
            0 => {
                page[..8].copy_from_slice(&self.fake.blocks.to_le_bytes());
                page[130] = 9;
            }
            1 => {
                page[4..8].copy_from_slice(b"FAKE");
                page[261] = 1 << 2;
                page[320] = 1;
                page[520] = 1 << 2 | 1 << 3;
                page[1792..1796].copy_from_slice(&self.fake.capsule_units.to_le_bytes());
            }
            2 => page[0] = 1,
            _ => {}
        }
        page
    }

    /// Takes all data, gives zeros.
    fn io(&mut self, entry: &SubmissionEntry) -> Answer {
        use longshore_nvme::opcode::Direction;
        match (entry.opcode().direction(), entry.sgl()) {
            (Direction::ToHost, _) => Answer::Data(Vec::new()),
            (Direction::ToController, SglDescriptor::Transport { length }) if length > 0 => {
                match self.fetch(entry, length) {
                    Ok(()) => Answer::success(0),
                    Err(_) => Answer::HangUp,
                }
            }
            _ => Answer::success(0),
        }
    }

    /// Asks for data by R2Ts of at most 16 KiB, and takes it.
    fn fetch(&mut self, entry: &SubmissionEntry, length: u32) -> io::Result<()> {
        let mut at = 0;
        while at < length {
            let part = (length - at).min(16 << 10);
            let r2t = R2t {
                command: entry.id(),
                tag: TransferTag(9),
                offset: at,
                length: part,
            };
            self.stream.write_all(&r2t.encode())?;
            let mut taken = 0;
            while taken < part {
                let mut header = [0; 24];
                self.stream.read_exact(&mut header)?;
                let data = CommonHeader::decode(&header).plen - 24;
                let mut bytes = vec![0; data as usize];
                self.stream.read_exact(&mut bytes)?;
                taken += data;
            }
            at += part;
        }
        Ok(())
    }
}
