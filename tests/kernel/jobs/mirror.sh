# File systems on volumes of a mirror, over both protocols: a side is left out and filled again, and the server is killed,
# while fio writes; in the end the data of both is compared with its checksums.
# nvme: 1
# api: yes
# limit: 600

TARGET=iqn.2026-11.local.longshore:mirror
SUBSYSTEM=nqn.2026-11.local.longshore:mirror
one={folder}/one.img
other={folder}/other.img

# longshore VERB…: the host runs this verb for the server.
longshore() {
    host longshore "$@"
}

set_up() {
    start_iscsid
    modprobe nvme_tcp
    longshore pool create safe "$one" "$other" --mirror --size 1G
    longshore volume create small backend=pool "pool=$one+$other" size=256M
    longshore volume create large backend=pool "pool=$one+$other" size=256M block-size=4096
    longshore target create "$TARGET" 'luns=[{"lun":0,"volume":"small"}]'
    longshore target create "$SUBSYSTEM" 'namespaces=[{"nsid":1,"volume":"large"}]'
    new_node "$PORTAL0"
    log_in "$PORTAL0"
    eventually 10 lun 0
    nvme_connect "$NVME0"
    eventually 10 namespace 1
}

file_system() {
    mkfs.ext4 -q -F "$1"
    mkdir -p "/mnt/$2"
    mount -t ext4 -o discard "$1" "/mnt/$2"
    cp -r /job "/mnt/$2/job"
    dd if=/dev/urandom of="/mnt/$2/noise" bs=64k count=64 2>/dev/null
    sync
    (cd "/mnt/$2" && md5sum noise job/*) >"/tmp/sums.$2"
}

# load NAME: writes and verifies, in the background.
load() {
    fio --name=verify --filename="/mnt/$1/data" --size=16M --rw=randwrite --bsrange=4k-128k \
        --ioengine=libaio --direct=1 --iodepth=16 --verify=crc32c --verify_fatal=1 \
        --do_verify=1 --fsync=64 --randseed=7 --loops=2 --minimal >"/tmp/fio.$1" 2>&1 &
    eval "load_$1=$!"
}

loads_end() {
    wait "$load_small" || { cat /tmp/fio.small; return 1; }
    wait "$load_large" || { cat /tmp/fio.large; return 1; }
}

left_out() {
    load small
    load large
    sleep 2
    longshore pool offline safe "$other"
    loads_end
    longshore pool show safe | grep -q stale
}

filled() {
    load small
    load large
    longshore pool replace safe "$other"
    loads_end
    shown=$(longshore pool show safe)
    case $shown in *stale* | *filling*) return 1 ;; esac
}

killed() {
    load small
    load large
    sleep 2
    host kill-server
    sleep 1
    host start-server
    loads_end
}

# same NAME DISK
same() {
    (cd "/mnt/$1" && md5sum -c "/tmp/sums.$1")
    umount "/mnt/$1"
    e2fsck -fn "$2"
}

sound() {
    log_out "$PORTAL0"
    nvme disconnect-all
    host stop-server
    longshore pool check "$one+$other" --data
}

check set-up set_up
check ext4-over-iscsi file_system "$(lun 0)" small
check ext4-over-nvme file_system "$(namespace 1)" large
check a-side-is-left-out-while-fio-verifies left_out
check the-side-is-filled-while-fio-verifies filled
check killed-while-fio-verifies killed
check small-is-the-same same small "$(lun 0)"
check large-is-the-same same large "$(namespace 1)"
check both-sides-are-sound sound
