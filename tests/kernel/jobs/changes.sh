# What Linux does, without a command in the guest, when the control plane changes what it is served: disks
# that come, go, grow and become read-only, access that is taken away, targets that are removed.
# nvme: 1
# api: yes
# limit: 600

TARGET=iqn.2026-11.local.longshore:changes
SUBSYSTEM=nqn.2026-11.local.longshore:changes
INITIATOR=$(sed 's/.*=//' /etc/iscsi/initiatorname.iscsi)
HOST=$(cat /etc/nvme/hostnqn)

# longshore VERB…: the host runs this verb for the server.
longshore() {
    host longshore "$@"
}

# soon WHAT COMMAND…: true within three seconds; says after how long.
soon() {
    soon_what=$1
    shift
    soon_begin=$(hundredths)
    eventually 3 "$@"
    say "$soon_what after $(($(hundredths) - soon_begin))0 ms"
}

# Time since boot.
hundredths() {
    cut -d ' ' -f 1 /proc/uptime | tr -d .
}

has_size() {
    [ "$(blockdev --getsize64 "$1")" = $(($2 << 20)) ]
}

# is_read_only DISK 0|1
is_read_only() {
    [ "$(cat "/sys/block/${1#/dev/}/ro")" = "$2" ]
}

# works DISK: what is written can be read.
works() {
    dd if=/dev/urandom of=/tmp/data bs=64k count=4 2>/dev/null
    dd if=/tmp/data of="$1" bs=64k oflag=direct 2>/dev/null
    dd if="$1" of=/tmp/back bs=64k count=4 iflag=direct 2>/dev/null
    cmp /tmp/data /tmp/back
}

refuses_writes() {
    fails dd if=/dev/zero of="$1" bs=4k count=1 oflag=direct
}

# create NAME MIB
create() {
    longshore volume create "$1" backend=file "path={folder}/$1.img" "size=$2M"
}

set_up() {
    start_iscsid
    modprobe nvme_tcp
    create first 64
    create second 64
    longshore target create "$TARGET" 'luns=[{"lun":0,"volume":"first"}]'
    longshore target create "$SUBSYSTEM" 'namespaces=[{"nsid":1,"volume":"first"}]'
    new_node "$PORTAL0"
    log_in "$PORTAL0"
    eventually 10 lun 0
    nvme_connect "$NVME0"
}

lun_appears() {
    no_lun 1
    longshore target map "$TARGET" second --number 1
    soon "LUN 1 is there" lun 1
    works "$(lun 1)"
}

namespace_appears() {
    no_namespace 2
    longshore target map "$SUBSYSTEM" second --number 2
    soon "NSID 2 is there" namespace 2
    works "$(namespace 2)"
}

# The SCSI host learns of it with its next command. It tells udev, and keeps the size until somebody, such as a
# rule of udev, has it look again.
disks_grow() {
    longshore volume resize second 96M
    soon "NSID 2 has grown" has_size "$(namespace 2)" 96
    disk=$(lun 1)
    dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct
    eventually 3 told "Capacity data has changed"
    echo 1 >"/sys/block/${disk#/dev/}/device/rescan"
    has_size "$disk" 96
    dd if=/dev/zero of="$disk" bs=1M count=1 seek=95 oflag=direct
    dd if=/dev/zero of="$(namespace 2)" bs=1M count=1 seek=95 oflag=direct
}

told() {
    dmesg | grep -q "$1"
}

# set_read_only true|false
set_read_only() {
    longshore target set "$TARGET" \
        "luns=[{\"lun\":0,\"volume\":\"first\"},{\"lun\":1,\"volume\":\"second\",\"read-only\":$1}]" "$2"
    longshore target set "$SUBSYSTEM" \
        "namespaces=[{\"nsid\":1,\"volume\":\"first\"},{\"nsid\":2,\"volume\":\"second\",\"read-only\":$1}]" "$2"
}

becomes_read_only() {
    set_read_only true --drain
    soon "NSID 2 is read-only" is_read_only "$(namespace 2)" 1
    refuses_writes "$(namespace 2)"
    disk=$(lun 1)
    refuses_writes "$disk"
    echo 1 >"/sys/block/${disk#/dev/}/device/rescan"
    is_read_only "$disk" 1
    dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct
}

becomes_writable() {
    set_read_only false --drain
    soon "NSID 2 is writable" is_read_only "$(namespace 2)" 0
    works "$(namespace 2)"
    disk=$(lun 1)
    echo 1 >"/sys/block/${disk#/dev/}/device/rescan"
    is_read_only "$disk" 0
    works "$disk"
}

unmap_is_refused_while_in_use() {
    fails longshore target unmap "$SUBSYSTEM" second
    fails longshore target unmap "$TARGET" second
    works "$(namespace 2)"
    works "$(lun 1)"
}

namespace_vanishes() {
    longshore target unmap "$SUBSYSTEM" second --drain
    soon "NSID 2 has gone" no_namespace 2
    works "$(namespace 1)"
}

# Linux keeps a SCSI disk whose logical unit has gone: it fails, and does not harm others.
scsi_disk_is_kept() {
    disk=$(lun 1)
    longshore target unmap "$TARGET" second --drain
    sleep 3
    [ "$(lun 1)" = "$disk" ]
    fails dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct
    works "$(lun 0)"
}

scsi_disk_returns() {
    longshore target map "$TARGET" second --number 1
    eventually 3 works "$(lun 1)"
}

scsi_disk_is_deleted() {
    disk=$(lun 1)
    longshore target unmap "$TARGET" second --drain
    echo 1 >"/sys/block/${disk#/dev/}/device/delete"
    eventually 3 no_lun 1
    create third 32
    longshore target map "$TARGET" third --number 1
    soon "another LUN 1 is there" lun 1
    has_size "$(lun 1)" 32
    works "$(lun 1)"
}

# allow_others: rules that let this guest and another host in.
allow_others() {
    longshore target allow "$TARGET" "$INITIATOR"
    longshore target allow "$TARGET" iqn.2026-11.local.longshore:other
    longshore target allow "$SUBSYSTEM" "$HOST"
    longshore target allow "$SUBSYSTEM" nqn.2026-11.local.longshore:other
    works "$(lun 0)"
    works "$(namespace 1)"
}

no_session_works() {
    ! grep -q LOGGED_IN /sys/class/iscsi_session/session*/state
}

no_controller_is_live() {
    ! nvme_is live
}

initiator_loses_access() {
    disk=$(lun 0)
    longshore target deny "$TARGET" "$INITIATOR" --drain
    eventually 15 no_session_works
    iscsiadm -m session -P 1 || true
    fails timeout 10 dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct
    log_out "$PORTAL0" || true
    ends_with 24 log_in "$PORTAL0"
}

host_loses_access() {
    longshore target deny "$SUBSYSTEM" "$HOST" --drain
    eventually 15 no_controller_is_live
    nvme disconnect -n "$SUBSYSTEM" || true
    fails nvme_to "$NVME0" connect -n "$SUBSYSTEM"
}

access_returns() {
    longshore target allow "$TARGET" "$INITIATOR"
    longshore target allow "$SUBSYSTEM" "$HOST"
    log_in "$PORTAL0"
    eventually 10 lun 0
    works "$(lun 0)"
    nvme_connect "$NVME0"
    works "$(namespace 1)"
}

target_is_removed() {
    fails longshore target remove "$TARGET"
    longshore target remove "$TARGET" --drain
    eventually 15 no_session_works
    log_out "$PORTAL0" || true
    fails log_in "$PORTAL0"
}

subsystem_is_removed() {
    fails longshore target remove "$SUBSYSTEM"
    longshore target remove "$SUBSYSTEM" --drain
    soon "NSID 1 has gone" no_namespace 1
    eventually 15 no_controller_is_live
    nvme disconnect -n "$SUBSYSTEM" || true
    fails nvme_to "$NVME0" connect -n "$SUBSYSTEM"
}

check set-up set_up
check lun-appears lun_appears
check namespace-appears namespace_appears
check disks-grow disks_grow
check disks-become-read-only becomes_read_only
check disks-become-writable becomes_writable
check unmap-is-refused-while-in-use unmap_is_refused_while_in_use
check namespace-vanishes namespace_vanishes
check scsi-disk-is-kept scsi_disk_is_kept
check scsi-disk-returns scsi_disk_returns
check scsi-disk-is-deleted-and-another-appears scsi_disk_is_deleted
check access-of-others-is-no-matter allow_others
check initiator-loses-access initiator_loses_access
check host-loses-access host_loses_access
check access-returns access_returns
check target-is-removed target_is_removed
check subsystem-is-removed subsystem_is_removed
