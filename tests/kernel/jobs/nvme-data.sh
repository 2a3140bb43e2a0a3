# File systems and verified data over NVMe/TCP, by all layouts of queues and all digests; space
# that is freed; a volume that grows.
# volume: disk0 512M
# volume: disk1 512M block-size=4096
# nvme: 1
# processors: 2
# limit: 750

modprobe nvme_tcp
modprobe xfs

# verified DISK [OPTION…]: random writes of odd sizes, read back and verified.
verified() {
    disk=$1
    shift
    fio --name=verify --filename="$disk" --size=4M --rw=randwrite --direct=1 \
        --bsrange="$(blockdev --getss "$disk")-128k" --blockalign="$(blockdev --getss "$disk")" \
        --ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --do_verify=1 \
        --randseed=7 --minimal "$@" >/tmp/fio.log
}

# queues COUNT OPTION…: that many queues with the admin queue, and data through them.
queues() {
    count=$1
    shift
    nvme_connect "$NVME0" "$@"
    [ "$(cat "/sys/class/nvme/$(nvme_controllers)/queue_count")" = "$count" ]
    dmesg | grep "mapped" | tail -n 1
    verified "$(namespace 1)" --numjobs=2 --offset_increment=16M
    case $* in
    *poll*) verified "$(namespace 1)" --ioengine=pvsync2 --hipri ;;
    esac
    nvme_disconnect
}

digests() {
    nvme_connect "$NVME0" "$@"
    verified "$(namespace 1)"
    # Longer than any segment, and an odd number of blocks.
    verified "$(namespace 1)" --bsrange=512-1M --offset=32M
    nvme_disconnect
}

both_disks() {
    nvme_connect "$NVME0"
    eventually 10 namespace 2
}

file_system() {
    case $2 in
    xfs)
        options="-f -K"
        export TEST_DIR=1 TEST_DEV=1 QA_CHECK_FS=1 # lets mkfs.xfs make a small one
        ;;
    *) options="-F -E nodiscard" ;;
    esac
    "mkfs.$2" -q $options "$1"
    mount -t "$2" "$1" /mnt
    fio --name=verify --filename=/mnt/data --size=24M --rw=randwrite --bsrange=4k-256k \
        --ioengine=libaio --direct=1 --iodepth=16 --verify=crc32c --verify_fatal=1 \
        --do_verify=1 --fsync=64 --randseed=7 --minimal >/tmp/fio.log
    cp -r /job /mnt/job
    (cd /mnt && md5sum data job/*.sh) >/tmp/sums."$2"
    umount /mnt
}

clean() {
    if [ "$2" = xfs ]; then xfs_repair -n "$1"; else e2fsck -fn "$1"; fi
}

same_after_connect() {
    mount -t "$2" "$1" /mnt
    (cd /mnt && md5sum -c "/tmp/sums.$2")
    umount /mnt
}

again() {
    nvme_disconnect
    both_disks
}

# At least 40 of 48 MiB must come back.
trim_gives_space_back() {
    mount -t ext4 "$1" /mnt
    dd if=/dev/urandom of=/mnt/random bs=1M count=48 2>/dev/null
    sync
    full=$(host allocated disk0)
    rm /mnt/random
    sync
    fstrim -v /mnt
    umount /mnt
    trimmed=$(host allocated disk0)
    echo "$full KiB before, $trimmed KiB after"
    [ $((full - trimmed)) -gt $((40 * 1024)) ]
    e2fsck -fn "$1"
}


# frees DISK VOLUME COMMAND…: after 4 MiB have been written at 400 MiB, the command gives them back,
# and they read as zeros.
frees() {
    disk=$1
    volume=$2
    shift 2
    dd if=/dev/urandom of="$disk" bs=1M count=4 seek=400 oflag=direct 2>/dev/null
    nvme flush "$disk"
    full=$(host allocated "$volume")
    "$@" "$disk"
    freed=$(host allocated "$volume")
    echo "$full KiB before, $freed KiB after"
    [ $((full - freed)) -ge 4096 ]
    dd if="$disk" of=/tmp/back bs=1M count=4 skip=400 iflag=direct 2>/dev/null
    head -c 4194304 /dev/zero | cmp - /tmp/back
}

larger() {
    [ "$(blockdev --getsize64 "$1")" = $((512 * 1024 * 1024)) ]
    host resize "$2" 1G
    host reload-server
    # By an event: nobody asks for a scan.
    eventually 10 has_size "$1" $((1024 * 1024 * 1024))
    dd if=/dev/zero of="$1" bs=1M count=1 seek=1023 oflag=direct
    nvme changed-ns-list-log "/dev/$(nvme_controllers)"
}

has_size() {
    [ "$(blockdev --getsize64 "$1")" = "$2" ]
}

check two-queues queues 3 --nr-io-queues=2
check queues-for-writes-and-polling queues 7 --nr-io-queues=2 --nr-write-queues=2 \
    --nr-poll-queues=2
check one-small-queue queues 2 --nr-io-queues=1 --queue-size=16
check without-flow-control queues 2 --nr-io-queues=1 --disable-sqflow
check header-digest digests --hdr-digest
check data-digest digests --data-digest
check both-digests digests --hdr-digest --data-digest
check connect both_disks
small=$(namespace 1)
large=$(namespace 2)
check blocks-of-4096-bytes verified "$large"
check ext4-with-512-byte-blocks file_system "$small" ext4
check fsck-of-ext4 clean "$small" ext4
check xfs-with-4096-byte-blocks file_system "$large" xfs
check repair-of-xfs clean "$large" xfs
check connect-again again
small=$(namespace 1)
large=$(namespace 2)
check ext4-is-the-same same_after_connect "$small" ext4
check xfs-is-the-same same_after_connect "$large" xfs
check trim-gives-space-back trim_gives_space_back "$small"
check blkdiscard-gives-space-back frees "$large" disk1 \
    blkdiscard -o 419430400 -l 4194304
check write-zeroes-gives-space-back frees "$large" disk1 \
    nvme write-zeroes --deac --start-block=102400 --block-count=1023
check first-volume-grows larger "$small" disk0
check second-volume-grows larger "$large" disk1
check disconnect nvme_disconnect
