# Two portals are two paths to one disk: writes go on when one of them dies, and return to it when
# it is back.
# volume: disk0 64M
# portals: 2
# guest: general
# limit: 600

modprobe dm_multipath
modprobe dm_round_robin
modprobe scsi_dh_alua
# The initiator needs it; the cloud kernel has it built in.
modprobe crc32c_generic
start_iscsid
for portal in "$PORTAL0" "$PORTAL1"; do
    new_node "$portal" node.session.timeo.replacement_timeout=3 \
        node.conn[0].timeo.noop_out_interval=2 node.conn[0].timeo.noop_out_timeout=2
done

two_sessions() {
    log_in "$PORTAL0"
    log_in "$PORTAL1"
    eventually 10 has_disks 2
}

# One logical unit has one name, whichever way it is reached.
same_identity() {
    names=$(for disk in $(disks); do cat "/sys/block/$disk/device/wwid"; done | sort -u)
    echo "$names"
    [ "$(echo "$names" | wc -l)" = 1 ] && [ -n "$names" ]
}

# Hosts with ALUA find the same group and state on every path, with either header of the report.
one_group_of_ports() {
    has_disks 2
    for disk in $(disks); do
        for header in "" --extended; do
            sg_rtpg --decode $header "/dev/$disk" >/tmp/groups
            cat /tmp/groups
            [ "$(grep -c "target port group id" /tmp/groups)" = 1 ]
            grep -q "target port group id : 0x1 " /tmp/groups
            grep -q "access state : 0x00 (active/optimized)" /tmp/groups
            grep -q "AN_SUP : 0, AO_SUP : 1" /tmp/groups
            grep -q "target port count : 0*1$" /tmp/groups
        done
    done
}

# The kernel's own handler of ALUA takes both paths, and finds them in the group.
handler_of_alua() {
    has_disks 2
    for disk in $(disks); do
        device=/sys/block/$disk/device
        echo "$disk: $(cat "$device/dh_state"), $(cat "$device/access_state"), preferred: $(cat "$device/preferred_path")"
        [ "$(cat "$device/dh_state")" = alua ]
        [ "$(cat "$device/access_state")" = active/optimized ]
        # Reads the groups again.
        echo 1 >"$device/rescan"
    done
    sleep 2
    for disk in $(disks); do
        [ "$(cat "/sys/block/$disk/device/access_state")" = active/optimized ]
    done
    fails sh -c "dmesg | grep -q 'alua: rtpg failed'"
}

make_multipath() {
    first=$(disks | head -n 1)
    second=$(disks | tail -n 1)
    sectors=$(cat "/sys/block/$first/size")
    paths="2 1 $(cat "/sys/block/$first/dev") 100 $(cat "/sys/block/$second/dev") 100"
    dmsetup create paths --table \
        "0 $sectors multipath 1 queue_if_no_path 1 alua 1 1 round-robin 0 $paths"
    dmsetup mknodes
    [ -b /dev/mapper/paths ]
}

one_path_dies() {
    dd if=/dev/zero of=/dev/mapper/paths bs=1M count=2 oflag=direct 2>/dev/null
    ledger write --device /dev/mapper/paths --seed 9 --blocks 512 --seconds 14 \
        >/tmp/acknowledged &
    writer=$!
    sleep 2
    host cut 0
    eventually 12 path_is_failed
    before=$(wc -l </tmp/acknowledged)
    sleep 2
    during=$(wc -l </tmp/acknowledged)
    host restore 0
    wait $writer
    after=$(wc -l </tmp/acknowledged)
    echo "generations: $before when the path had failed, $during 2 s later, $after at the end"
    [ "$during" -gt "$before" ]
    ledger check --device /dev/mapper/paths --seed 9 --blocks 512 --acknowledged "$after"
}

path_is_failed() {
    dmsetup status paths | grep -q ' F '
}

path_returns() {
    eventually 15 sessions_are_up
    dmsetup message paths 0 "reinstate_path $(cat "/sys/block/$(disks | head -n 1)/dev")"
    dmsetup message paths 0 "reinstate_path $(cat "/sys/block/$(disks | tail -n 1)/dev")"
    dd if=/dev/mapper/paths of=/dev/null bs=64k count=64 iflag=direct
    dmsetup status paths
    fails path_is_failed
}

sessions_are_up() {
    [ "$(cat /sys/class/iscsi_session/session*/state | grep -c LOGGED_IN)" = 2 ]
}

check two-sessions two_sessions
sleep 0.5
check both-paths-show-one-identity same_identity
check every-port-is-in-one-optimized-group one_group_of_ports
check the-kernel-knows-the-group handler_of_alua
check multipath-device make_multipath
check writes-go-on-when-a-path-dies one_path_dies
check path-returns path_returns
dmsetup remove paths
check logout-of-both sh -c "iscsiadm -m node --logoutall=all"
