//! From what is measured to the terms of the document.

use std::time::Duration;

use longshore_bench::medium::Way as Measured;
use longshore_bench::workload::{Direction, Order, Pattern};
use longshore_model::probe::{self, TcpFacts};
use longshore_reactor::socket::TcpInfo;

pub(crate) const fn way(way: Measured) -> probe::Way {
    match way {
        Measured::Iscsi => probe::Way::Iscsi,
        Measured::NvmeTcp => probe::Way::NvmeTcp,
        Measured::File => probe::Way::File,
        Measured::Block => probe::Way::Block,
    }
}

pub(crate) const fn pattern(direction: probe::Direction, pattern: probe::Pattern) -> Pattern {
    Pattern {
        order: match pattern {
            probe::Pattern::OnePlace | probe::Pattern::Random => Order::Random,
            probe::Pattern::Sequential => Order::Sequential,
        },
        direction: match direction {
            probe::Direction::Read => Direction::Read,
            probe::Direction::Write => Direction::Write,
        },
    }
}

pub(crate) fn tcp(info: &TcpInfo) -> TcpFacts {
    TcpFacts {
        rtt_us: Some(info.rtt_us.into()),
        min_rtt_us: info.min_rtt_us.map(u64::from),
        snd_mss: Some(info.send_segment_bytes.into()),
        delivery_rate: info.delivery_rate,
        app_limited: info.is_app_limited,
        busy_us: info.busy_us,
        rwnd_limited_us: info.receive_window_limited_us,
        sndbuf_limited_us: info.send_buffer_limited_us,
        retransmits: Some(info.retransmits.into()),
        cwnd: Some(info.congestion_window.into()),
    }
}

/// What has been added to a connection between two looks; states are those at the end.
pub(crate) fn tcp_since(before: &TcpInfo, after: &TcpInfo) -> TcpFacts {
    let since = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
    TcpFacts {
        busy_us: since(after.busy_us, before.busy_us),
        rwnd_limited_us: since(
            after.receive_window_limited_us,
            before.receive_window_limited_us,
        ),
        sndbuf_limited_us: since(after.send_buffer_limited_us, before.send_buffer_limited_us),
        retransmits: Some(after.retransmits.saturating_sub(before.retransmits).into()),
        ..tcp(after)
    }
}

pub(crate) fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A text of a peer, without what a terminal obeys, and no longer than a document holds.
pub(crate) fn text(text: &str) -> String {
    const CHARACTERS_MAX: usize = 1000;
    let shown = text.chars().take(CHARACTERS_MAX);
    shown
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// A negotiated value without its unit.
pub(crate) fn plain(value: &str) -> String {
    let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    match unit {
        "bytes" | "entries" | "ms" if is_number => number.to_owned(),
        _ => text(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lose_their_units_and_texts_what_a_terminal_obeys() {
        assert_eq!(plain("8192 bytes"), "8192");
        assert_eq!(plain("128 entries"), "128");
        assert_eq!(
            plain("1 default, 0 read, 0 poll"),
            "1 default, 0 read, 0 poll"
        );
        assert_eq!(plain("a\u{1b}[2Jb"), "a?[2Jb");
        assert_eq!(plain(" bytes"), " bytes");
        assert_eq!(plain(&"x".repeat(100_000)).len(), 1000);
    }

    #[test]
    fn what_adds_up_is_a_difference_and_what_is_a_state_is_not() {
        let before = TcpInfo {
            rtt_us: 50,
            retransmits: 4,
            busy_us: Some(100),
            ..TcpInfo::default()
        };
        let after = TcpInfo {
            rtt_us: 70,
            retransmits: 5,
            busy_us: Some(350),
            ..before
        };
        let facts = tcp_since(&before, &after);
        assert_eq!((facts.rtt_us, facts.retransmits), (Some(70), Some(1)));
        assert_eq!((facts.busy_us, facts.rwnd_limited_us), (Some(250), None));
    }
}
