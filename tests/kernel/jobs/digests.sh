# Header and data digests in all four combinations, each seen in the session's parameters and each
# carrying data both ways.
# volume: disk0 64M
# limit: 750

start_iscsid

# digests HEADER DATA: a login with these, data out and in, logout.
digests() {
    iscsiadm -m node -T "$TARGET" -p "$PORTAL0" -o delete >/dev/null 2>&1 || true
    new_node "$PORTAL0" "node.conn[0].iscsi.HeaderDigest=$1" "node.conn[0].iscsi.DataDigest=$2"
    log_in "$PORTAL0"
    grep -q "$3" /sys/class/iscsi_connection/connection*/header_digest
    grep -q "$4" /sys/class/iscsi_connection/connection*/data_digest
    disk=$(wait_for_disk)
    dd if=/dev/urandom of=/tmp/data bs=64k count=64 2>/dev/null
    dd if=/tmp/data of="$disk" bs=64k seek=16 oflag=direct 2>/dev/null
    dd if="$disk" of=/tmp/back bs=64k skip=16 count=64 iflag=direct 2>/dev/null
    cmp /tmp/data /tmp/back
    # Sizes that are no multiple of anything but a block.
    dd if=/tmp/data of="$disk" bs=512 count=33 seek=7 oflag=direct 2>/dev/null
    dd if="$disk" of=/tmp/back bs=16896 count=1 skip=3584 iflag=direct,skip_bytes 2>/dev/null
    head -c 16896 /tmp/data | cmp - /tmp/back
    log_out "$PORTAL0"
    eventually 5 has_disks 0
}

check no-digest digests None None 0 0
check header-digest digests CRC32C None 1 0
check data-digest digests None CRC32C 0 1
check both-digests digests CRC32C CRC32C 1 1
