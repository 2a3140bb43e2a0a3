# What the file system frees, the host gets back; what the host adds, the guest sees.
# volume: disk0 512M
# limit: 600

start_iscsid
new_node "$PORTAL0"
check login log_in "$PORTAL0"
disk=$(wait_for_disk)

unmap_is_offered() {
    [ "$(cat "/sys/block/${disk#/dev/}/queue/discard_max_bytes")" -gt 0 ]
}

# At least 80 of 96 MiB must come back.
trim_gives_space_back() {
    mkfs.ext4 -q -F -E nodiscard "$disk"
    mount -t ext4 "$disk" /mnt
    dd if=/dev/urandom of=/mnt/data bs=1M count=96 2>/dev/null
    sync
    full=$(host allocated disk0)
    rm /mnt/data
    sync
    fstrim -v /mnt
    umount /mnt
    trimmed=$(host allocated disk0)
    echo "$full KiB before, $trimmed KiB after"
    [ $((full - trimmed)) -gt $((80 * 1024)) ]
    e2fsck -fn "$disk"
}

blkdiscard_reads_zeros() {
    dd if=/dev/urandom of="$disk" bs=1M count=4 seek=100 oflag=direct 2>/dev/null
    blkdiscard -o 104857600 -l 4194304 "$disk"
    dd if="$disk" of=/tmp/back bs=1M count=4 skip=100 iflag=direct 2>/dev/null
    head -c 4194304 /dev/zero | cmp - /tmp/back
}

larger_after_rescan() {
    [ "$(blockdev --getsize64 "$disk")" = $((512 * 1024 * 1024)) ]
    host resize disk0 1G
    host reload-server
    sleep 0.5
    iscsiadm -m session --rescan
    eventually 10 has_size $((1024 * 1024 * 1024))
    dd if=/dev/zero of="$disk" bs=1M count=1 seek=1023 oflag=direct
}

has_size() {
    [ "$(blockdev --getsize64 "$disk")" = "$1" ]
}

check unmap-is-offered unmap_is_offered
check trim-gives-space-back trim_gives_space_back
check discarded-blocks-read-zeros blkdiscard_reads_zeros
check volume-grows-while-in-use larger_after_rescan
check logout log_out "$PORTAL0"
