//! `longshore discover`

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use longshore_client::discover::{Discovery, FoundTarget, FoundVolume, Server, discover};
use longshore_initiator::info::Protocol;
use longshore_initiator::url::{HostPort, HostPortError, ISCSI_PORT, NVME_PORT, Url, UrlError};

use crate::connection::ConnectionArguments;
use crate::output::{Bytes, OutputFormat, json, printable};

/// Nobody waits long for a port that may not be there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub struct DiscoverArguments {
    /// The server: a name or address, with a port to query that port only; or a URL that contains it
    ///
    /// Without a port, discovery queries 3260 (iSCSI), 8009 and 4420 (NVMe/TCP). Put IPv6 addresses in
    /// brackets. Of a URL, only the server counts, and the user of iSCSI.
    #[arg(value_name = "HOST[:PORT]|URL", value_parser = parse_asked)]
    asked: Asked,

    /// Format of the output
    #[arg(
        long,
        value_name = "text|json",
        default_value = "text",
        hide_possible_values = true
    )]
    output: OutputFormat,

    #[command(flatten)]
    connection: ConnectionArguments,
}

/// The server to ask, and the URL if one was given.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    server: Server,
    url: Option<Url>,
}

/// Why a text names no server.
#[derive(Debug, thiserror::Error)]
enum AskedError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    HostPort(#[from] HostPortError),
    #[error(
        "unknown scheme {0}://; give HOST[:PORT], iscsi://HOST[:PORT] or nvme+tcp://HOST[:PORT]"
    )]
    Scheme(String),
}

/// Target and LUN of a URL in which only user and server count.
const NO_VOLUME: &str = "iqn.2026-11.local.longshore:discovery/0";

fn parse_asked(text: &str) -> Result<Asked, AskedError> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Ok(Asked {
            server: server(text, None)?,
            url: None,
        });
    };
    let port = match scheme {
        "iscsi" => ISCSI_PORT,
        "nvme+tcp" => NVME_PORT,
        other => return Err(AskedError::Scheme(other.to_owned())),
    };
    // A server alone: URLs of volumes are known only after discovery.
    let alone = rest.trim_end_matches('/');
    if !alone.contains(['/', '@', '?']) {
        return Ok(Asked {
            server: server(alone, Some(port))?,
            url: None,
        });
    }
    // A user and a server: the volume that completes the URL is never asked for.
    let url: Url = match alone.contains(['/', '?']) {
        false if scheme == "iscsi" => format!("iscsi://{alone}/{NO_VOLUME}").parse()?,
        _ => text.parse()?,
    };
    let HostPort { host, port } = url.portals()[0].clone();
    Ok(Asked {
        server: Server {
            host,
            port: Some(port),
        },
        url: Some(url),
    })
}

fn server(text: &str, usual_port: Option<u16>) -> Result<Server, HostPortError> {
    let HostPort { host, port } = HostPort::parse(text, usual_port.unwrap_or(0))?;
    Ok(Server {
        host,
        port: (port != 0).then_some(port),
    })
}

pub fn run(arguments: &DiscoverArguments) -> ExitCode {
    let url = arguments.asked.url.as_ref();
    let mut options = match arguments.connection.options(url) {
        Ok(options) => url.map_or(options.clone(), |url| options.for_url(url)),
        Err(error) => return crate::exit::refuse(&error),
    };
    if arguments.connection.connect_timeout.is_none() {
        options.timeouts.connect = CONNECT_TIMEOUT;
        options.timeouts.login = LOGIN_TIMEOUT;
    }
    let discovery = discover(&arguments.asked.server, &options);
    let printed = match arguments.output {
        OutputFormat::Json => crate::exit::print(&json(&discovery)),
        OutputFormat::Text => crate::exit::print(text(&discovery).as_bytes()),
    };
    if discovery.answered.is_empty() {
        for silent in &discovery.silent {
            let (protocol, reason) = (silent.protocol, printable(&silent.reason));
            eprintln!("error: no {protocol} at {reason}");
        }
        return ExitCode::FAILURE;
    }
    printed
}

fn text(discovery: &Discovery) -> String {
    let mut text = String::new();
    for protocol in [Protocol::Iscsi, Protocol::NvmeTcp] {
        let answered = discovery.answered.iter();
        let portals: Vec<_> = answered
            .filter(|answered| answered.protocol == protocol)
            .map(|answered| answered.portal.as_str())
            .collect();
        if portals.is_empty() {
            continue;
        }
        let targets: Vec<_> = discovery
            .targets
            .iter()
            .filter(|target| target.protocol == protocol)
            .collect();
        let offers = match (targets.len(), protocol) {
            (0, Protocol::Iscsi) => "offers no target to this initiator",
            (0, Protocol::NvmeTcp) => "offers no subsystem to this host",
            _ => "",
        };
        let separator = if offers.is_empty() { "" } else { " " };
        let _ = writeln!(
            text,
            "{protocol} at {}{separator}{offers}",
            portals.join(" and ")
        );
        for target in targets {
            write_target(&mut text, target);
        }
    }
    text
}

/// Writing to a string does not fail.
fn write_target(text: &mut String, target: &FoundTarget) {
    let _ = writeln!(text, "  {}", printable(&target.name));
    for portal in &target.portals {
        let group = portal.portal_group_tag;
        let group = group.map_or_else(String::new, |tag| format!(" (group {tag})"));
        let transport = match portal.transport.as_str() {
            "tcp" => String::new(),
            other => format!(" over {}", printable(other)),
        };
        let address = printable(&portal.address);
        let _ = writeln!(text, "    at {address}{transport}{group}");
    }
    if let Some(problem) = &target.problem {
        let _ = writeln!(text, "    volumes unknown: {}", printable(problem));
    }
    for volume in &target.volumes {
        write_volume(text, target.protocol, volume);
    }
}

fn write_volume(text: &mut String, protocol: Protocol, volume: &FoundVolume) {
    let number = match protocol {
        Protocol::Iscsi => "LUN",
        Protocol::NvmeTcp => "NSID",
    };
    let mut facts = vec![format!("{number} {}", volume.number)];
    facts.extend(volume.size_bytes.map(|size| Bytes(size).to_string()));
    facts.extend(volume.block_size.map(|size| format!("blocks of {size}")));
    facts.push(printable(&volume.product));
    facts.retain(|fact| !fact.is_empty());
    let _ = writeln!(text, "    {}", facts.join(", "));
    if let Some(url) = &volume.url {
        let _ = writeln!(text, "      {url}");
    }
    if let Some(problem) = &volume.problem {
        let _ = writeln!(text, "      {}", printable(problem));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_client::discover::{Answered, Portal};

    #[test]
    fn a_server_is_a_host_with_or_without_a_port() {
        for (text, host, port) in [
            ("storage", "storage", None),
            ("192.0.2.7:3261", "192.0.2.7", Some(3261)),
            ("[fe80::1]", "fe80::1", None),
            ("[fe80::1]:1", "fe80::1", Some(1)),
        ] {
            let Asked { server, url } = parse_asked(text).unwrap();
            assert_eq!((server.host.as_str(), server.port, url), (host, port, None));
        }
        assert!(parse_asked("host:0").is_err());
    }

    #[test]
    fn a_url_names_a_server_too() {
        let volume = "192.0.2.7:77/iqn.2026-11.local:a/0";
        for (text, host, port, is_whole) in [
            ("iscsi://storage", "storage", 3260, false),
            ("iscsi://storage/", "storage", 3260, false),
            ("nvme+tcp://storage", "storage", 4420, false),
            ("nvme+tcp://[fe80::1]:8009", "fe80::1", 8009, false),
            (&format!("iscsi://{volume}"), "192.0.2.7", 77, true),
            ("iscsi://me%secret@192.0.2.7", "192.0.2.7", 3260, true),
            ("iscsi://me%secret@[::1]:77/", "::1", 77, true),
            (
                &format!("iscsi://me%secret@{volume}"),
                "192.0.2.7",
                77,
                true,
            ),
            (
                "nvme+tcp://storage/nqn.2026-11.local:a/1",
                "storage",
                4420,
                true,
            ),
        ] {
            let Asked { server, url } = parse_asked(text).unwrap();
            assert_eq!((server.host.as_str(), server.port), (host, Some(port)));
            assert_eq!(url.is_some(), is_whole, "{text}");
        }
        let text = parse_asked("http://storage").unwrap_err().to_string();
        assert!(text.contains("iscsi://HOST"), "{text}");
        let text = parse_asked("iscsi://storage/nonsense").unwrap_err();
        assert!(matches!(text, AskedError::Url(_)), "{text}");
    }

    #[test]
    fn the_url_of_each_volume_stands_on_a_line_of_its_own() {
        let target = FoundTarget {
            protocol: Protocol::Iscsi,
            name: "iqn.2026-11.local:a".to_owned(),
            portals: vec![Portal {
                address: "192.0.2.7:3260".to_owned(),
                transport: "tcp".to_owned(),
                portal_group_tag: Some(1),
            }],
            volumes: vec![FoundVolume {
                number: 0,
                size_bytes: Some(1 << 30),
                block_size: Some(512),
                product: "LONGSHOR disk".to_owned(),
                url: Some("iscsi://192.0.2.7/iqn.2026-11.local:a/0".to_owned()),
                problem: None,
            }],
            problem: None,
        };
        let discovery = Discovery {
            answered: vec![Answered {
                protocol: Protocol::Iscsi,
                portal: "192.0.2.7:3260".to_owned(),
            }],
            targets: vec![target],
            silent: Vec::new(),
        };
        assert_eq!(
            text(&discovery),
            "iSCSI at 192.0.2.7:3260\n  iqn.2026-11.local:a\n    at 192.0.2.7:3260 (group 1)\n    \
             LUN 0, 1 GiB, blocks of 512, LONGSHOR disk\n      \
             iscsi://192.0.2.7/iqn.2026-11.local:a/0\n"
        );
    }
}
