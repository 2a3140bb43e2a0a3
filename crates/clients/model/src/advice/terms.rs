//! How a value is set, in the terms of each server and initiator.

use crate::probe::Make;

/// A key of iSCSI, on the server and on initiators.
pub(super) fn iscsi_key(make: Make, key: &str, value: u64) -> Vec<String> {
    let dashed = match key {
        "MaxOutstandingR2T" => "max-outstanding-r2t",
        "FirstBurstLength" => "first-burst-length",
        "DataDigest" => "data-digest",
        _ => "max-burst-length",
    };
    let server = match make {
        Make::Longshore => format!("server: {dashed} = {value} in [iscsi]"),
        Make::Lio => format!("server: targetcli /iscsi/IQN/tpg1 set parameter {key}={value}"),
        Make::Tgt => {
            format!(
                "server: tgtadm --lld iscsi --op update --mode target --tid N --name {key} --value {value}"
            )
        }
        Make::Scst => format!("server: {key} {value} in scst.conf, attribute of the target"),
        Make::Spdk if key == "MaxOutstandingR2T" => {
            format!("server: iscsi_set_options --max-r2t-per-connection {value}")
        }
        Make::Spdk if key == "FirstBurstLength" => {
            format!("server: iscsi_set_options --first-burst-length {value}")
        }
        Make::Spdk => format!("server: {key} of {value}, where the build allows it"),
        Make::Nvmet | Make::Unknown => format!("server: {key} of {value}"),
    };
    let mut how = vec![
        server,
        format!("initiator: open-iscsi node.session.iscsi.{key} = {value}"),
    ];
    if key == "MaxOutstandingR2T" {
        how.push(
            "initiator: libiscsi (QEMU) offers 1 whatever is set, so it gains nothing".to_owned(),
        );
    }
    how
}

/// Data in the capsules of NVMe/TCP.
pub(super) fn in_capsule(make: Make, bytes: u64) -> String {
    match make {
        Make::Longshore => format!("server: in-capsule-data = {bytes} in [limits]"),
        Make::Nvmet => format!(
            "server: echo {bytes} > ports/N/param_inline_data_size (at most 16384 in older kernels)"
        ),
        Make::Spdk => {
            format!("server: nvmf_create_transport -t TCP --in-capsule-data-size {bytes}")
        }
        _ => format!("server: IOCCSZ for {bytes} bytes of data in a capsule"),
    }
}

/// Polling before a sleep.
pub(super) fn polls(make: Make) -> &'static str {
    match make {
        Make::Longshore => "server: spin = 200 in [engine]",
        Make::Spdk => "server: it polls already; give its reactor a core of its own",
        Make::Lio | Make::Scst | Make::Nvmet => {
            "server: sysctl net.core.busy_read=50; cpupower idle-set -D 10"
        }
        Make::Tgt | Make::Unknown => "server: cpupower idle-set -D 10",
    }
}

/// How each make turns header and data digests off.
pub(super) fn no_digests(make: Make, is_iscsi: bool) -> Vec<String> {
    if !is_iscsi {
        return vec!["initiator: nvme connect without --hdr-digest and --data-digest".to_owned()];
    }
    let server = match make {
        Make::Longshore => "server: nothing to do; it takes what the initiator offers".to_owned(),
        Make::Lio => {
            "server: targetcli /iscsi/IQN/tpg1 set parameter DataDigest=None HeaderDigest=None"
                .to_owned()
        }
        Make::Tgt => {
            "server: tgtadm --lld iscsi --op update --mode target --tid N --name DataDigest --value None"
                .to_owned()
        }
        Make::Scst => "server: DataDigest None, HeaderDigest None in scst.conf".to_owned(),
        Make::Spdk => "server: iscsi_create_target_node without -H and -D".to_owned(),
        Make::Nvmet | Make::Unknown => "server: DataDigest and HeaderDigest of None".to_owned(),
    };
    vec![
        server,
        "initiator: open-iscsi node.conn[0].iscsi.DataDigest = None, HeaderDigest = None"
            .to_owned(),
    ]
}

/// A processor of its own.
pub(super) fn own_processor(make: Make) -> Vec<String> {
    let server = match make {
        Make::Longshore => "server: cores = \"0,2-3\" in [engine]: cores that nothing else uses",
        Make::Spdk => "server: -m MASK with cores that nothing else uses",
        Make::Tgt => "server: taskset -pc CORE $(pidof tgtd)",
        Make::Lio | Make::Scst | Make::Nvmet => {
            "server: its threads are the kernel's; move other programs away (AllowedCPUs= of systemd)"
        }
        Make::Unknown => "server: taskset, or AllowedCPUs= of systemd",
    };
    vec![
        server.to_owned(),
        "server: no CPUQuota= (cpu.max) on its unit or container".to_owned(),
        "server: interrupts of the card on another core: /proc/irq/N/smp_affinity_list".to_owned(),
    ]
}

/// More operations under way.
pub(super) fn depth(is_iscsi: bool, depth: u16) -> Vec<String> {
    let mut how = vec!["application: asynchronous I/O or more threads; fio --iodepth".to_owned()];
    how.push(if is_iscsi {
        let commands = u32::from(depth).next_power_of_two().max(128);
        format!(
            "initiator: open-iscsi node.session.queue_depth = {depth} (32 by default), \
             node.session.cmds_max = {commands}"
        )
    } else {
        format!(
            "initiator: nvme connect --queue-size={}",
            u32::from(depth).max(16) + 1
        )
    });
    how
}

/// Large operations apart from small ones.
pub(super) fn apart(make: Make, is_iscsi: bool) -> Vec<String> {
    if is_iscsi {
        return vec![
            "initiator: a second session for one of the loads: open-iscsi node.session.nr_sessions = 2, \
             without multipath over both"
                .to_owned(),
        ];
    }
    let mut how = vec![
        "initiator: nvme connect --nr-write-queues=N: writes have queues of their own".to_owned(),
    ];
    match make {
        Make::Nvmet => {
            how.push("server: attr_qid_max of the subsystem allows as many queues".to_owned())
        }
        Make::Spdk => {
            how.push("server: nvmf_create_transport --max-io-qpairs-per-ctrlr N".to_owned())
        }
        Make::Longshore => how.push("server: io-queues in [limits] allows as many".to_owned()),
        _ => {}
    }
    how
}
