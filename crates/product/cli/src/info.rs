//! `longshore info`

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use longshore_client::info::{Info, info};
use longshore_initiator::info::{ReservationReport, VolumeInfo};
use longshore_initiator::url::Url;

use crate::connection::ConnectionArguments;
use crate::output::{Bytes, OutputFormat, Table, json, printable};

#[derive(Debug, Args)]
pub struct InfoArguments {
    // Not a doc comment: rustdoc takes brackets for links.
    #[arg(
        value_name = "URL",
        help = "The volume: iscsi://HOST[:PORT]/IQN/LUN or nvme+tcp://HOST[:PORT]/NQN/NSID"
    )]
    url: Url,

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

pub fn run(arguments: &InfoArguments) -> ExitCode {
    let options = match arguments.connection.options(Some(&arguments.url)) {
        Ok(options) => options,
        Err(error) => return crate::exit::refuse(&error),
    };
    match info(&arguments.url, &options) {
        Ok(info) => match arguments.output {
            OutputFormat::Json => crate::exit::print(&json(&info)),
            OutputFormat::Text => crate::exit::print(text(&info).as_bytes()),
        },
        Err(error) => crate::exit::fail(&error),
    }
}

fn text(info: &Info) -> String {
    let mut text = format!("{}\n{}", info.url, volume(info));
    if !info.negotiated.is_empty() {
        let mut table = Table::default();
        for (name, value) in &info.negotiated {
            table.row(&printable(name), printable(value));
        }
        let _ = write!(text, "\nconnection to {}\n{table}", info.portal);
    }
    if let Some(report) = &info.reservation {
        let _ = write!(text, "\nreservation\n{}", reservation(report));
    }
    text
}

fn volume(info: &Info) -> Table {
    let volume = &info.volume;
    let mut table = Table::default();
    let size = info.size_bytes;
    let blocks = |blocks: u64| {
        let bytes = Bytes(blocks.saturating_mul(u64::from(volume.block_size)));
        format!("{bytes} ({blocks} blocks)")
    };
    table.row("capacity", format!("{} ({size} bytes)", Bytes(size)));
    table.row("block size", format!("{} bytes", volume.block_size));
    table.row(
        "physical block size",
        format!("{} bytes", volume.physical_block_size),
    );
    let product = [&volume.vendor, &volume.product, &volume.revision];
    let product = product.map(|part| printable(part)).join(" ");
    table.row("product", product.trim());
    table.row("serial number", printable(&volume.serial));
    for identifier in &volume.identifiers {
        let kind = format!("identifier ({})", printable(&identifier.kind));
        table.row(&kind, printable(&identifier.value));
    }
    table.row(
        "access",
        if volume.read_only {
            "read-only"
        } else {
            "read and write"
        },
    );
    table.row(
        "write cache",
        if volume.write_cache {
            "volatile"
        } else {
            "none"
        },
    );
    table.row("supports", supported(volume));
    let limits = [
        (
            "largest transfer",
            volume.max_transfer_blocks.map(u64::from),
        ),
        (
            "optimal transfer",
            volume.optimal_transfer_blocks.map(u64::from),
        ),
        (
            "unmap granularity",
            volume.unmap_granularity_blocks.map(u64::from),
        ),
        ("largest unmap", volume.max_unmap_blocks),
        ("largest write of zeroes", volume.max_write_zeroes_blocks),
        (
            "largest compare and write",
            volume.compare_and_write_max.map(u64::from),
        ),
    ];
    for (name, limit) in limits {
        table.optional(name, limit.map(blocks));
    }
    table
}

fn supported(volume: &VolumeInfo) -> String {
    let abilities = [
        (volume.fua, "FUA"),
        (volume.unmap, "unmap"),
        (
            volume.unmap && volume.unmapped_reads_zeros,
            "unmapped reads zeros",
        ),
        (volume.write_zeroes, "write zeroes"),
        (volume.compare_and_write_max.is_some(), "compare and write"),
        (volume.extent_status, "extent status"),
    ];
    let names: Vec<_> = abilities
        .into_iter()
        .filter_map(|(able, name)| able.then_some(name))
        .collect();
    if names.is_empty() {
        "reads and writes only".to_owned()
    } else {
        names.join(", ")
    }
}

fn reservation(report: &ReservationReport) -> Table {
    let mut table = Table::default();
    let none = || "none".to_owned();
    let kind = report.kind.as_deref().map_or_else(none, printable);
    table.row("type", kind);
    table.optional("holder", report.holder.as_deref().map(printable));
    table.row("generation", report.generation);
    for registration in &report.registrations {
        let holds = if registration.holds {
            " (holds it)"
        } else {
            ""
        };
        table.row(
            "registered",
            format!(
                "{} with key {:#018x}{holds}",
                printable(&registration.registrant),
                registration.key
            ),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_initiator::info::{Identifier, Protocol, Registration};

    fn example() -> Info {
        Info {
            url: "iscsi://192.0.2.7/iqn.2026-11.local:a/0".to_owned(),
            portal: "192.0.2.7:3260".to_owned(),
            size_bytes: 1 << 30,
            volume: VolumeInfo {
                protocol: Protocol::Iscsi,
                block_size: 512,
                block_count: 1 << 21,
                physical_block_size: 4096,
                read_only: false,
                write_cache: true,
                fua: true,
                unmap: true,
                unmapped_reads_zeros: true,
                write_zeroes: true,
                compare_and_write_max: Some(1),
                extent_status: true,
                max_transfer_blocks: Some(8192),
                optimal_transfer_blocks: None,
                unmap_granularity_blocks: Some(8),
                max_unmap_blocks: None,
                max_write_zeroes_blocks: None,
                vendor: "LONGSHOR".to_owned(),
                product: "disk\u{1b}".to_owned(),
                revision: "0.1".to_owned(),
                serial: "S1".to_owned(),
                identifiers: vec![Identifier {
                    kind: "naa".to_owned(),
                    value: "6001".to_owned(),
                }],
            },
            negotiated: vec![("MaxBurstLength".to_owned(), "262144".to_owned())],
            reservation: Some(ReservationReport {
                generation: 3,
                kind: Some("write exclusive".to_owned()),
                holder: Some("key 1".to_owned()),
                registrations: vec![Registration {
                    key: 1,
                    registrant: "iqn.host".to_owned(),
                    holds: true,
                }],
            }),
        }
    }

    #[test]
    fn values_are_aligned_and_harmless() {
        let text = text(&example());
        for line in [
            "iscsi://192.0.2.7/iqn.2026-11.local:a/0\n",
            "  capacity                   1 GiB (1073741824 bytes)\n",
            "  product                    LONGSHOR disk\u{fffd} 0.1\n",
            "  identifier (naa)           6001\n",
            "  largest transfer           4 MiB (8192 blocks)\n",
            "\nconnection to 192.0.2.7:3260\n  MaxBurstLength  262144\n",
            "  registered  iqn.host with key 0x0000000000000001 (holds it)\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn json_keys_are_the_documented_ones() {
        let value: serde_json::Value = serde_json::from_slice(&json(&example())).unwrap();
        for key in ["url", "portal", "size_bytes", "block_size", "reservation"] {
            assert!(value.get(key).is_some(), "{key}");
        }
        assert_eq!(value["protocol"], "iscsi");
        assert_eq!(value["negotiated"]["MaxBurstLength"], "262144");
    }
}
