//! A probe as people read it.

use std::fmt::Write as _;
use std::time::Duration;

use longshore_bench::result::float;
use longshore_bench::units::show_size;
use longshore_model::parameter::Name;
use longshore_model::probe::{Direction, Fitted, NetworkFacts, Pattern, PointFacts, Probe, Role};
use longshore_model::spread::{Distribution, Spread};

use crate::output::{Table, columns, printable, time};

pub fn text(probe: &Probe) -> String {
    let mut text = String::new();
    let subject = &probe.subject;
    let _ = writeln!(text, "{}", printable(&subject.name));
    let mut table = Table::default();
    table.optional(
        "server",
        subject.product.as_deref().map(|product| {
            let portal = subject.portal.as_deref().unwrap_or_default();
            format!("{} at {portal}", printable(product))
        }),
    );
    table.row(
        "volume",
        format!(
            "{} in blocks of {}",
            show_size(subject.volume_bytes),
            show_size(subject.block_size)
        ),
    );
    table.row(
        "measured",
        format!(
            "{} UTC, for {:.0} s",
            time(probe.made_ms),
            Duration::from_millis(probe.took_ms).as_secs_f64()
        ),
    );
    if let Some(network) = &probe.network {
        add_network(&mut table, network);
    }
    add_protocol(&mut table, probe);
    add_processors(&mut table, probe);
    let _ = write!(text, "{table}");
    if !probe.points.is_empty() {
        let _ = write!(text, "\n{}", points(&probe.points));
    }
    for (direction, fitted) in [("reads", &probe.fitted), ("writes", &probe.fitted_writes)] {
        if let Some(fitted) = fitted {
            let _ = write!(text, "\n{}", parts(direction, fitted));
        }
    }
    for remark in &probe.remarks {
        let _ = writeln!(text, "\n- {}", printable(&remark.text));
    }
    text
}

fn add_network(table: &mut Table, network: &NetworkFacts) {
    let times = |times: &Distribution| {
        (times.count > 0).then(|| {
            format!(
                "{:.0} µs (least {:.0}, p99 {:.0}, {} times)",
                times.p50, times.min, times.p99, times.count
            )
        })
    };
    table.optional("handshake", times(&network.handshake_rtt_us));
    table.optional("round trip every 2 ms", times(&network.ping_us));
    let rare = network.ping_rare_us.as_ref();
    table.optional("round trip every 200 ms", rare.and_then(times));
    let echo = network.echo_bytes_per_second.as_ref();
    table.optional(
        "without storage",
        echo.map(|rate| format!("{:.1} MB/s each way", rate.value / 1e6)),
    );
    let tcp = &network.tcp;
    table.optional(
        "round trip of TCP",
        tcp.rtt_us.map(|smooth| {
            let least = tcp.min_rtt_us.map(|us| format!(" (least {us})"));
            format!("{smooth} µs{}", least.unwrap_or_default())
        }),
    );
    let delivered = tcp.delivery_rate.filter(|rate| *rate > 0);
    table.optional(
        "sent, as TCP saw it",
        delivered.map(|rate| {
            let limited = match tcp.app_limited {
                Some(true) => "; the initiator had no more to send",
                _ => "",
            };
            format!("{:.1} MB/s{limited}", float(rate) / 1e6)
        }),
    );
    let held = [
        (tcp.rwnd_limited_us, "the server's window"),
        (tcp.sndbuf_limited_us, "the send buffer"),
    ];
    let held = held.into_iter().filter_map(|(us, by)| {
        let ms = us? / 1000;
        (ms > 0).then(|| format!("{ms} ms by {by}"))
    });
    let held = held.collect::<Vec<_>>().join(", ");
    table.optional("held back", (!held.is_empty()).then_some(held));
    let segment = tcp.snd_mss.zip(network.mtu);
    table.optional(
        "TCP segment",
        segment.map(|(segment, mtu)| format!("{segment} bytes, MTU {mtu}")),
    );
    let retransmits = tcp.retransmits.filter(|count| *count > 0);
    table.optional(
        "sent again",
        retransmits.map(|count| format!("{count} segments")),
    );
}

fn add_protocol(table: &mut Table, probe: &Probe) {
    let Some(facts) = &probe.transfer else {
        return;
    };
    let segment = facts.read_segment_bytes;
    table.optional(
        "data of reads",
        segment.map(|bytes| format!("{} a PDU", show_size(bytes))),
    );
    if let Some(arrival) = &facts.arrival {
        let pace = arrival.bytes_per_second.as_ref();
        let pace = pace.map(|pace| format!(", then {:.1} MB/s", pace.value / 1e6));
        let (size, first) = (show_size(arrival.bytes), arrival.first_us.value);
        let rest = pace.unwrap_or_default();
        table.row(
            "one read",
            format!("{size}: first byte after {first:.0} µs{rest}"),
        );
    }
    let Some(bytes) = facts.r2t_bytes else {
        return;
    };
    let outstanding = facts.outstanding.unwrap_or(1);
    let early = match facts.early {
        Some(true) => ", before the data that needs none",
        Some(false) => ", after the data that needs none",
        None => "",
    };
    let size = show_size(bytes);
    table.row(
        "data of writes",
        format!("R2Ts of {size}, {outstanding} at a time{early}"),
    );
    let counts = facts.r2ts_per_write.iter();
    let counts: Vec<String> = counts
        .map(|(size, count)| format!("{count} for {}", show_size(*size)))
        .collect();
    table.row("R2Ts of a write", counts.join(", "));
}

fn add_processors(table: &mut Table, probe: &Probe) {
    if let Some(server) = &probe.server {
        let row = format!(
            "{:.2} µs for an operation, {} operations",
            server.working_us_per_op, server.operations
        );
        table.row("its processor time", row);
        table.optional(
            "its wake-up",
            server.wake_up_us.map(|us| format!("{us:.0} µs")),
        );
    }
    let client = &probe.client;
    table.row(
        "client",
        format!(
            "{} processors, Linux {}",
            client.cpus,
            printable(&client.kernel)
        ),
    );
}

fn points(points: &[PointFacts]) -> String {
    let rows = points.iter().map(|point| {
        let spread = |spread: &Spread, digits: usize| {
            let percent = spread.relative() * 100.0;
            format!("{:.digits$} ±{percent:.0} %", spread.value)
        };
        let cpu = |cpu: Option<Spread>| {
            cpu.map_or_else(|| "–".to_owned(), |it| format!("{:.1}", it.value))
        };
        #[expect(
            clippy::cast_precision_loss,
            reason = "an operation has less than 2^52 bytes"
        )]
        let megabytes = point.iops.value * point.size_bytes as f64 / 1e6;
        vec![
            match point.direction {
                Direction::Read => "read",
                Direction::Write => "write",
            }
            .to_owned(),
            match point.pattern {
                Pattern::OnePlace => "one place",
                Pattern::Random => "random",
                Pattern::Sequential => "in order",
            }
            .to_owned(),
            show_size(point.size_bytes),
            point.depth.to_string(),
            spread(&point.iops, 0),
            format!("{megabytes:.1}"),
            spread(&point.latency_us, 1),
            format!("{:.1}", point.p99_us.value),
            cpu(point.client_cpu_us),
            cpu(point.server_cpu_us),
            match point.role {
                Role::Fit => "",
                Role::Held => "kept back",
                Role::Asked => "asked for",
            }
            .to_owned(),
        ]
    });
    columns(
        &[
            "",
            "PLACE",
            "SIZE",
            "DEPTH",
            "IOPS",
            "MB/s",
            "MEAN µs",
            "P99 µs",
            "CLIENT µs",
            "SERVER µs",
            "",
        ],
        rows.collect(),
    )
}

/// What was fitted, and how well it predicts what was kept back.
fn parts(direction: &str, fitted: &Fitted) -> String {
    let rows = fitted.parameters.iter().map(|part| {
        let unit = Name::find(&part.name).ok().and_then(|name| match name {
            Name::Key(key) => Some(key.definition().unit),
            _ => None,
        });
        let show = |value| unit.map_or_else(String::new, |unit| unit.show(value).to_string());
        vec![
            printable(&part.name),
            show(part.value),
            if part.value > 0.0 {
                format!("±{:.0} %", 100.0 * part.uncertainty / part.value)
            } else {
                String::new()
            },
            printable(&part.note),
        ]
    });
    let title = format!("PARTS OF {}", direction.to_uppercase());
    let mut text = columns(&[&title, "VALUE", "", "SOURCE"], rows.collect());
    let medium: Vec<String> = fitted
        .storage_times
        .iter()
        .map(|(size, time)| {
            let (value, spread) = (time.value, time.uncertainty);
            format!("{} {value:.0} ±{spread:.0} µs", show_size(*size))
        })
        .collect();
    if !medium.is_empty() {
        let _ = writeln!(
            text,
            "\n- without network and processors, one operation takes the medium: {}",
            medium.join(", ")
        );
    }
    for group in &fitted.confounded {
        let names: Vec<String> = group.iter().map(|name| printable(name)).collect();
        let _ = writeln!(
            text,
            "\n- {} cannot be told apart by the measurements: only a combination of them is known",
            names.join(" and ")
        );
    }
    if let Some(error) = &fitted.error {
        let _ = writeln!(
            text,
            "\n{} loads that were kept back are predicted with a median error of {:.1} %, {:.1} % at worst",
            error.points, error.median_percent, error.worst_percent
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_server_command_no_terminal() {
        let mut probe = Probe::default();
        probe.subject.name = "iscsi://\u{1b}[31mhost".to_owned();
        probe.subject.product = Some("\u{7}bell".to_owned());
        let text = text(&probe);
        assert!(text.contains("host") && text.contains("bell"));
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{7}'),
            "{text}"
        );
    }

    #[test]
    fn what_tcp_says_is_there_where_it_says_something() {
        let mut probe = Probe::default();
        let network = probe.network.insert(NetworkFacts::default());
        network.tcp.rtt_us = Some(120);
        network.tcp.min_rtt_us = Some(90);
        network.tcp.delivery_rate = Some(118_000_000);
        network.tcp.app_limited = Some(true);
        network.tcp.rwnd_limited_us = Some(7_000);
        network.tcp.sndbuf_limited_us = Some(300);
        let told = text(&probe);
        for row in [
            "120 µs (least 90)",
            "118.0 MB/s; the initiator had no more to send",
            "7 ms by the server's window",
        ] {
            assert!(told.contains(row), "{told}");
        }
        assert!(!told.contains("send buffer"), "{told}");
        probe.network = Some(NetworkFacts::default());
        let told = text(&probe);
        assert!(
            !told.contains("TCP") && !told.contains("held back"),
            "{told}"
        );
    }
}
