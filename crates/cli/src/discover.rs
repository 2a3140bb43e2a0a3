//! `longshore discover`

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use longshore_client::discover::{Discovery, FoundTarget, FoundVolume, Server, discover};
use longshore_initiator::info::Protocol;
use longshore_initiator::url::{HostPort, HostPortError};

use crate::connection::ConnectionArguments;
use crate::output::{Bytes, OutputFormat, json, printable};

/// Nobody waits long for a port that may not be there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub struct DiscoverArguments {
    /// The server: a name or address, and a port if only that one is to be asked
    ///
    /// Without a port, 3260 (iSCSI), 8009 and 4420 (NVMe/TCP) are asked. IPv6 addresses stand in
    /// brackets.
    #[arg(value_name = "HOST[:PORT]", value_parser = parse_server)]
    server: Server,

    /// How the result is printed
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

fn parse_server(text: &str) -> Result<Server, HostPortError> {
    let HostPort { host, port } = HostPort::parse(text, 0)?;
    Ok(Server {
        host,
        port: (port != 0).then_some(port),
    })
}

pub fn run(arguments: &DiscoverArguments) -> ExitCode {
    let mut options = match arguments.connection.options(None) {
        Ok(options) => options,
        Err(error) => return crate::refuse(&error),
    };
    if arguments.connection.connect_timeout.is_none() {
        options.timeouts.connect = CONNECT_TIMEOUT;
        options.timeouts.login = LOGIN_TIMEOUT;
    }
    let discovery = discover(&arguments.server, &options);
    let printed = match arguments.output {
        OutputFormat::Json => crate::print(&json(&discovery)),
        OutputFormat::Text => crate::print(text(&discovery).as_bytes()),
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
        let _ = writeln!(text, "    volumes not known: {}", printable(problem));
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
            let server = parse_server(text).unwrap();
            assert_eq!((server.host.as_str(), server.port), (host, port));
        }
        assert!(parse_server("host:0").is_err());
        assert!(parse_server("iscsi://host").is_err());
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
