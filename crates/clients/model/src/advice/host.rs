//! Changes of hosts and their network.

use super::change::{Actor, Case, Change, POLLED_US};
use super::terms;
use crate::identify::FitError;
use crate::parameter::Key;
use crate::probe::{Role, TcpFacts};

/// Time of interrupts that is held back, from which less is worth a change, in microseconds.
const HELD_US_MIN: f64 = 4.0;

/// Part of a latency that a setting can be held responsible for at most.
const HELD_SHARE: f64 = 0.8;

/// Part of the time with data to send for which a connection was held back, from which that is no chance.
const LIMITED_MIN: f64 = 0.1;
/// What of it counts at most.
const LIMITED_MAX: f64 = 0.9;

/// A server that gets more of its processor is not worth a change.
const SHARE_MAX: f64 = 0.95;

pub(super) fn changes(case: &Case<'_>) -> Result<Vec<Change>, FitError> {
    let mut all = Vec::new();
    if case.probe.network.is_none() {
        return Ok(all);
    }
    all.extend(jumbo_frames(case)?);
    all.extend(polls(case)?);
    all.extend(moderation(case)?);
    all.extend(autocorking(case)?);
    all.extend(tcp_memory(case)?);
    all.extend(own_processor(case)?);
    Ok(all)
}

fn jumbo_frames(case: &Case<'_>) -> Result<Option<Change>, FitError> {
    if case.parts.get(Key::Mtu) > 1500.0 {
        return Ok(None);
    }
    Ok(Some(Change {
        what: "use packets of 9000 bytes on the whole way".to_owned(),
        how: vec!["both hosts and every switch: ip link set dev DEVICE mtu 9000".to_owned()],
        cost: "all machines of the network segment change",
        risk: "a switch with a smaller MTU drops packets in silence: connections hang",
        check: "ping -M do -s 8972 SERVER",
        ..case.change("jumbo-frames", Actor::Host, &[(Key::Mtu, 9000.0)])?
    }))
}

/// Polling needs a processor for each end; two ends on one machine share it.
fn polls(case: &Case<'_>) -> Result<Vec<Change>, FitError> {
    let sleeps = |key| case.parts.get(key) > 2.0 * POLLED_US && !case.is_loopback();
    let mut all = Vec::new();
    let rest = |change| Change {
        cost: "a core is busy while there is a load",
        risk: "other programs on that core get less of it",
        check: "longshore probe: the round trip every 2 ms gets shorter",
        ..change
    };
    if sleeps(Key::ServerWakeUp) {
        let values = [(Key::ServerWakeUp, POLLED_US)];
        all.push(Change {
            what: "let the server poll before it sleeps".to_owned(),
            how: vec![terms::polls(case.probe.subject.make).to_owned()],
            ..rest(case.change("server-polls", Actor::Server, &values)?)
        });
    }
    if sleeps(Key::ClientWakeUp) {
        let values = [(Key::ClientWakeUp, POLLED_US)];
        all.push(Change {
            what: "let the client poll for answers".to_owned(),
            how: vec![
                "client: sysctl net.core.busy_read=50 net.core.busy_poll=50; cpupower idle-set -D 10"
                    .to_owned(),
                "NVMe: nvme connect --nr-poll-queues=N, with io_uring and fio --hipri".to_owned(),
            ],
            ..rest(case.change("client-polls", Actor::Host, &values)?)
        });
    }
    Ok(all)
}

/// Cards that hold interrupts back, as far as their settings are known: each direction waits for that of its receiver.
fn moderation(case: &Case<'_>) -> Result<Option<Change>, FitError> {
    let of = |name| case.setting(name).unwrap_or(0.0);
    let (client, server) = (of("client.rx-usecs"), of("server.rx-usecs"));
    if client + server < HELD_US_MIN {
        return Ok(None);
    }
    let way = case.parts.get(Key::OneWayLatency);
    let held = f64::midpoint(client, server).min(way * HELD_SHARE);
    let mut how = Vec::new();
    for (side, held) in [("client", client), ("server", server)] {
        if held > 0.0 {
            how.push(format!(
                "{side}: ethtool -C DEVICE adaptive-rx off rx-usecs 0"
            ));
        }
    }
    let values = [(Key::OneWayLatency, way - held)];
    Ok(Some(Change {
        what: "let the cards interrupt at once".to_owned(),
        how,
        cost: "an interrupt for each train of packets: more processor time under load",
        risk: "under heavy load of many small packets throughput can fall",
        check: "ethtool -c DEVICE; longshore probe: handshakes get shorter",
        ..case.change("interrupt-moderation", Actor::Host, &values)?
    }))
}

/// A small packet waits until an earlier one has left the card, which it learns with the card's interrupt for sent ones.
fn autocorking(case: &Case<'_>) -> Result<Option<Change>, FitError> {
    let side = if case.is_write() { "client" } else { "server" };
    let is_on = case.setting(&format!("{side}.net.ipv4.tcp_autocorking")) == Some(1.0);
    let held = case.setting(&format!("{side}.tx-usecs")).unwrap_or(0.0);
    if !is_on || held < HELD_US_MIN || case.goal.depth < 2 {
        return Ok(None);
    }
    // One direction waits, half of that time in the mean.
    let way = case.parts.get(Key::OneWayLatency);
    let values = [(Key::OneWayLatency, way - (held / 4.0).min(way * HELD_SHARE))];
    Ok(Some(Change {
        what: format!("let small packets of the {side} leave at once"),
        how: vec![
            format!("{side}: sysctl net.ipv4.tcp_autocorking=0"),
            format!("{side}: or ethtool -C DEVICE tx-usecs 0"),
        ],
        cost: "more and smaller packets: more processor time under load",
        risk: "where the processor is the limit, throughput can fall",
        check: "nstat -az TcpExtTCPAutoCorking stays where it is",
        ..case.change("autocorking", Actor::Host, &values)?
    }))
}

/// The part of the time with data to send for which the window of the receiver, or the sender's buffer, held it back.
fn limited(tcp: &TcpFacts) -> Option<[f64; 2]> {
    let number = |value: Option<u64>| super::change::float(value.unwrap_or(0));
    let busy = number(tcp.busy_us);
    let share = |value| number(value) / busy;
    (busy > 0.0).then(|| [share(tcp.rwnd_limited_us), share(tcp.sndbuf_limited_us)])
}

/// What the sender of the data says: of writes this machine, of reads a Longshore server.
fn tcp_memory(case: &Case<'_>) -> Result<Option<Change>, FitError> {
    let senders: Vec<&TcpFacts> = if case.is_write() {
        let points = case.probe.points_of(Role::Fit);
        let points = points.filter(|(_, it)| it.direction == case.goal.direction);
        points.filter_map(|(_, it)| it.tcp.as_ref()).collect()
    } else {
        let server = case.probe.server.iter();
        server.flat_map(|it| &it.tcp).collect()
    };
    let all = senders.into_iter().filter_map(limited);
    let most = all.max_by(|a, b| a[0].max(a[1]).total_cmp(&b[0].max(b[1])));
    let Some([window, buffer]) = most.filter(|it| it[0].max(it[1]) >= LIMITED_MIN) else {
        return Ok(None);
    };
    let (sender, receiver) = if case.is_write() {
        ("client", "server")
    } else {
        ("server", "client")
    };
    let how = if window >= buffer {
        format!("{receiver}: sysctl net.ipv4.tcp_rmem=\"4096 131072 67108864\"")
    } else {
        format!("{sender}: sysctl net.ipv4.tcp_wmem=\"4096 131072 67108864\"")
    };
    let share = window.max(buffer).min(LIMITED_MAX);
    let values = [(Key::Rate, case.parts.get(Key::Rate) / (1.0 - share))];
    Ok(Some(Change {
        what: "give TCP more memory: its buffers held data back".to_owned(),
        how: vec![how],
        cost: "memory of the kernel for each connection that moves much",
        risk: "many such connections can use up net.ipv4.tcp_mem",
        check: "ss -ti: rwnd_limited and sndbuf_limited go away",
        ..case.change("tcp-memory", Actor::Host, &values)?
    }))
}

fn own_processor(case: &Case<'_>) -> Result<Option<Change>, FitError> {
    if case.parts.get(Key::ServerShare) > SHARE_MAX {
        return Ok(None);
    }
    Ok(Some(Change {
        what: "leave the server its processors".to_owned(),
        how: terms::own_processor(case.probe.subject.make),
        cost: "other programs run elsewhere",
        risk: "none for the server; what is moved away may get slower",
        check: "longshore top: event loops do not wait for a core",
        ..case.change("own-processor", Actor::Server, &[(Key::ServerShare, 1.0)])?
    }))
}
