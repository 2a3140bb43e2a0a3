//! TLS below a connection of a host, with a key that host and controller share.

use std::net::TcpStream;

use longshore_nvme::nqn::Nqn;
use longshore_nvme::psk::{Origin, TlsPsk};

use super::link::Deadline;
use crate::channel::Channel;
use crate::error::Error;
use crate::options::{Options, TlsOptions};
use crate::url::HostPort;

/// Who talks to whom; the key is for both.
#[derive(Clone, Copy)]
pub(super) struct Ends<'a> {
    pub(super) portal: &'a HostPort,
    pub(super) host: &'a Nqn,
    pub(super) subsystem: &'a Nqn,
}

impl Ends<'_> {
    fn failed(&self, reason: String, advice: &'static str) -> Error {
        Error::Authentication {
            portal: self.portal.clone(),
            reason,
            advice,
        }
    }

    /// What the connection is to use: TLS if a key was made, or the options have one, and otherwise the bare stream.
    ///
    /// # Errors
    /// There is no TLS between the two. The bare stream is never taken in its place.
    pub(super) fn channel(
        &self,
        stream: TcpStream,
        options: &Options,
        made: Option<&TlsPsk>,
        deadline: Deadline,
    ) -> Result<Channel, Error> {
        match (made, &options.nvme.tls) {
            (Some(key), _) => self.secure(stream, key, deadline),
            (None, Some(tls)) => self.secure(stream, &self.key(tls)?, deadline),
            (None, None) => Ok(stream.into()),
        }
    }

    fn key(&self, tls: &TlsOptions) -> Result<TlsPsk, Error> {
        let retained = tls.key.retained(self.host, tls.derivation);
        let key = retained.tls_psk(self.host, self.subsystem, tls.version, Origin::Configured);
        key.map_err(|error| Error::Options(error.to_string()))
    }
}

#[cfg(not(feature = "tls"))]
impl Ends<'_> {
    fn secure(
        &self,
        _stream: TcpStream,
        _key: &TlsPsk,
        _deadline: Deadline,
    ) -> Result<Channel, Error> {
        Err(self.failed(
            format!(
                "this program was built without TLS, and {} cannot go to {} over it",
                self.host, self.subsystem
            ),
            "use one with the feature tls",
        ))
    }
}

#[cfg(feature = "tls")]
mod handshake {
    use std::os::fd::AsFd;
    use std::sync::OnceLock;

    use longshore_nvme::psk::PskHash;
    use longshore_tls::{Client, Handshake, Psk, Session, SetUpError, Suite, TlsError};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;

    use super::*;

    /// What all connections share.
    fn client() -> Result<&'static Client, SetUpError> {
        static CLIENT: OnceLock<Client> = OnceLock::new();
        if let Some(client) = CLIENT.get() {
            return Ok(client);
        }
        let client = Client::new()?;
        Ok(CLIENT.get_or_init(|| client))
    }

    /// The key as TLS takes it.
    fn psk(key: &TlsPsk) -> Result<Psk, Error> {
        let suite = match key.identity.hash {
            PskHash::Sha256 => Suite::Aes128GcmSha256,
            PskHash::Sha384 => Suite::Aes256GcmSha384,
        };
        let identity = key.identity.to_string();
        Psk::new(identity.as_bytes(), suite, key.key())
            .map_err(|error| Error::Options(error.to_string()))
    }

    impl Ends<'_> {
        pub(super) fn secure(
            &self,
            stream: TcpStream,
            key: &TlsPsk,
            deadline: Deadline,
        ) -> Result<Channel, Error> {
            let system = |what: &'static str| {
                move |source: std::io::Error| Error::System {
                    what,
                    source: source.into(),
                }
            };
            let set_up = |error| system("set up TLS")(std::io::Error::other(error));
            stream
                .set_nonblocking(true)
                .map_err(system("set a socket to not block"))?;
            let client = client().map_err(set_up)?;
            let session = client.connect(stream, psk(key)?).map_err(set_up)?;
            self.shake(session, deadline).map(Channel::from)
        }

        fn shake(
            &self,
            mut session: Session<TcpStream>,
            deadline: Deadline,
        ) -> Result<Session<TcpStream>, Error> {
            loop {
                match session.handshake() {
                    Ok(Handshake::Done) => return Ok(session),
                    Ok(Handshake::Waiting) => {}
                    Err(error) => return Err(self.refused(error)),
                }
                let Some(left) = deadline.left() else {
                    let limit = deadline.limit().as_millis();
                    return Err(self.failed(
                        format!("no answer to the TLS handshake within {limit} ms"),
                        "check that the server speaks TLS on this port",
                    ));
                };
                let mut interest = PollFlags::IN;
                interest.set(PollFlags::OUT, session.has_unsent());
                let limit = Timespec {
                    tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: left.subsec_nanos().into(),
                };
                let socket = session.stream().as_fd();
                match poll(
                    &mut [PollFd::from_borrowed_fd(socket, interest)],
                    Some(&limit),
                ) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => {
                        return Err(Error::System {
                            what: "wait for a socket",
                            source: std::io::Error::from(error).into(),
                        });
                    }
                }
            }
        }

        fn refused(&self, error: TlsError) -> Error {
            let advice = match error {
                TlsError::Failed(_) => {
                    "compare the key, the host NQN and the identity (longshore key derive) with the server's"
                }
                TlsError::NoPsk => {
                    "something that does not know the key answers; check the network"
                }
                TlsError::Io(_) | TlsError::Closed => {
                    "check that the server speaks TLS on this port, and see its log"
                }
            };
            self.failed(format!("no TLS: {error}"), advice)
        }
    }
}
