# File systems on volumes of a pool, of both block sizes: snapshots while fio writes, clones of them mounted beside, a server
# that is killed, and the check of the pool in the end.
# nvme: 1
# api: yes
# limit: 900

TARGET=iqn.2026-11.local.longshore:pool
SUBSYSTEM=nqn.2026-11.local.longshore:pool
pool={folder}/tank.img

# longshore VERB…: the host runs this verb for the server.
longshore() {
    host longshore "$@"
}

# create NAME NUMBER OPTION…: a volume of the pool, that this guest sees over both protocols.
create() {
    create_name=$1
    create_number=$2
    shift 2
    longshore volume create "$create_name" backend=pool "pool=$pool" "$@"
    longshore target map "$TARGET" "$create_name" --number "$create_number"
    longshore target map "$SUBSYSTEM" "$create_name" --number "$((create_number + 1))"
}

set_up() {
    start_iscsid
    modprobe nvme_tcp
    longshore pool create tank "$pool" --size 2G
    longshore volume create small backend=pool "pool=$pool" size=512M
    longshore target create "$TARGET" 'luns=[{"lun":0,"volume":"small"}]'
    longshore target create "$SUBSYSTEM" 'namespaces=[{"nsid":1,"volume":"small"}]'
    create large 1 size=512M block-size=4096 compression=lz4
    new_node "$PORTAL0"
    log_in "$PORTAL0"
    eventually 10 lun 1
    nvme_connect "$NVME0"
    eventually 10 namespace 2
}

file_system() {
    if [ "$2" = xfs ]; then
        export TEST_DIR=1 TEST_DEV=1 QA_CHECK_FS=1 # lets mkfs.xfs make a small one
        mkfs.xfs -q -f "$1"
    else
        mkfs.ext4 -q -F "$1"
    fi
    mkdir -p "/mnt/$2"
    mount -t "$2" -o discard "$1" "/mnt/$2"
    cp -r /job "/mnt/$2/job"
    dd if=/dev/urandom of="/mnt/$2/noise" bs=64k count=64 2>/dev/null
    sync
    (cd "/mnt/$2" && md5sum noise job/*) >"/tmp/sums.$2"
}

# load KIND: writes and verifies, in the background.
load() {
    fio --name=verify --filename="/mnt/$1/data" --size=24M --rw=randwrite --bsrange=4k-256k \
        --ioengine=libaio --direct=1 --iodepth=16 --verify=crc32c --verify_fatal=1 \
        --do_verify=1 --fsync=64 --randseed=7 --loops=2 --minimal >"/tmp/fio.$1" 2>&1 &
    eval "load_$1=$!"
}

# Space as hosts see it: usage as in `pool show`, and the three soft thresholds.
use_shows() {
    eventually 10 counts_agree
    sg_modes --page=0x1c,2 "$(lun 1)" | tee /tmp/thresholds
    [ "$(grep -o '80 01 00 00' /tmp/thresholds | wc -l)" -eq 3 ]
}

counts_agree() {
    sg_logs --page=0xc "$(lun 1)" | tee /tmp/log
    counted=$(sed -n 's/.*Used LBA.*resource count: *//p' /tmp/log)
    left=$(sed -n 's/.*Available LBA.*resource count: *//p' /tmp/log)
    bytes=$(used)
    say "$counted MiB used, $left left; $bytes bytes"
    [ "$counted" -eq "$(((bytes + 1048575) / 1048576))" ] && [ "$left" -gt 1000 ]
}

snapshots() {
    load ext4
    load xfs
    sleep 2
    longshore pool snapshot create "$pool" one small large
    sleep 1
    longshore pool snapshot create "$pool" two small large
    wait "$load_ext4" || { cat /tmp/fio.ext4; return 1; }
    wait "$load_xfs" || { cat /tmp/fio.xfs; return 1; }
}

# cloned SNAPSHOT VOLUME NUMBER KIND: what had been written before the snapshot is in a clone of it, whose file system is sound.
cloned() {
    longshore pool snapshot clone "$pool" "$2@$1" "$2-$1"
    options=
    block_size=512
    [ "$4" != xfs ] || options="-o nouuid" block_size=4096
    create "$2-$1" "$3" "block-size=$block_size"
    eventually 10 lun "$3"
    mkdir -p /mnt/clone
    # Replays the journal.
    mount -t "$4" $options "$(lun "$3")" /mnt/clone
    (cd /mnt/clone && md5sum -c "/tmp/sums.$4")
    echo a clone is written to >/mnt/clone/more
    umount /mnt/clone
    clean "$(lun "$3")" "$4"
}

clean() {
    if [ "$2" = xfs ]; then xfs_repair -n "$1"; else e2fsck -fn "$1"; fi
}

killed() {
    load ext4
    load xfs
    sleep 2
    host kill-server
    sleep 1
    host start-server
    wait "$load_ext4" || { cat /tmp/fio.ext4; return 1; }
    wait "$load_xfs" || { cat /tmp/fio.xfs; return 1; }
}

# same KIND DISK
same() {
    (cd "/mnt/$1" && md5sum -c "/tmp/sums.$1")
    [ ! -e "/mnt/$1/more" ]
    umount "/mnt/$1"
    clean "$2" "$1"
}

trimmed() {
    before=$(used)
    blkdiscard "$(namespace 1)"
    blkdiscard "$(lun 1)"
    for snapshot in one two; do
        longshore pool snapshot delete "$pool" "small@$snapshot"
        longshore pool snapshot delete "$pool" "large@$snapshot"
    done
    after=$(used)
    say "$before bytes used, then $after"
    [ "$after" -lt "$before" ]
}

# used: bytes of data in the pool.
used() {
    longshore pool show "$pool" --output json | sed 's/.*"used-bytes": *\([0-9]*\).*/\1/'
}

sound() {
    log_out "$PORTAL0"
    nvme disconnect-all
    host stop-server
    longshore pool check "$pool" --data
}

check set-up set_up
modprobe xfs
check ext4-over-nvme file_system "$(namespace 1)" ext4
check xfs-over-iscsi file_system "$(lun 1)" xfs
check use-shows-over-iscsi use_shows
check snapshots-while-fio-verifies snapshots
check first-snapshot-of-ext4 cloned one small 2 ext4
check first-snapshot-of-xfs cloned one large 3 xfs
check second-snapshot-of-ext4 cloned two small 4 ext4
check second-snapshot-of-xfs cloned two large 5 xfs
check killed-while-fio-verifies killed
check ext4-is-the-same same ext4 "$(namespace 1)"
check xfs-is-the-same same xfs "$(lun 1)"
check discarded-space-comes-back trimmed
check the-pool-is-sound sound
