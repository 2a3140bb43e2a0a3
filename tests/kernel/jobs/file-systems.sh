# ext4 and xfs on volumes of both block sizes: written, verified by fio, checked, and the same
# after a new login.
# volume: disk0 512M
# volume: disk1 512M block-size=4096
# limit: 750

start_iscsid

discover() {
    iscsiadm -m discovery -t sendtargets -p "$PORTAL0" | tee /dev/stderr | grep "$TARGET"
}

# Finds the disk by its block size, since LUNs of different servers start at different numbers.
disk_with_blocks() {
    for disk in $(disks); do
        if [ "$(cat "/sys/block/$disk/queue/logical_block_size")" = "$1" ] &&
            [ "$(cat "/sys/block/$disk/size")" -gt 0 ]; then
            echo "/dev/$disk"
        fi
    done
}

file_system() {
    disk=$1
    kind=$2
    options=
    if [ "$kind" = xfs ]; then
        options="-f -K"
        export TEST_DIR=1 TEST_DEV=1 QA_CHECK_FS=1 # lets mkfs.xfs make a small one
    else
        options="-F -E nodiscard"
    fi
    "mkfs.$kind" -q $options "$disk"
    mount -t "$kind" "$disk" /mnt
    fio --name=verify --filename=/mnt/data --size=24M --rw=randwrite --bsrange=4k-256k \
        --ioengine=libaio --direct=1 --iodepth=16 --verify=crc32c --verify_fatal=1 \
        --do_verify=1 --fsync=64 --randseed=7 --minimal >/tmp/fio.log
    cp -r /job /mnt/job
    (cd /mnt && md5sum data job/*) >/tmp/sums
    umount /mnt
}

clean() {
    if [ "$2" = xfs ]; then xfs_repair -n "$1"; else e2fsck -fn "$1"; fi
}

same_after_login() {
    mount -t "$2" "$1" /mnt
    (cd /mnt && md5sum -c "/tmp/sums.$2")
    umount /mnt
}

check discovery discover
new_node "$PORTAL0"
check login log_in "$PORTAL0"
eventually 10 has_disks 2 || true
sleep 0.5
small=$(disk_with_blocks 512)
large=$(disk_with_blocks 4096)
check ext4-with-512-byte-blocks file_system "$small" ext4
mv /tmp/sums /tmp/sums.ext4
check fsck-of-ext4 clean "$small" ext4
modprobe xfs
check xfs-with-4096-byte-blocks file_system "$large" xfs
mv /tmp/sums /tmp/sums.xfs
check repair-of-xfs clean "$large" xfs
check logout log_out "$PORTAL0"
check second-login log_in "$PORTAL0"
eventually 10 has_disks 2 || true
sleep 0.5
check ext4-is-the-same same_after_login "$(disk_with_blocks 512)" ext4
check xfs-is-the-same same_after_login "$(disk_with_blocks 4096)" xfs
