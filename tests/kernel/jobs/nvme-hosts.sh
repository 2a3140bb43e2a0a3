# Hosts that are let in by name, with namespaces of their own or read-only; and two hosts that
# contend for a namespace by reservations, which survive a restart of the server.
# volume: disk0 64M
# volume: disk1 32M
# nvme: 1
# config: nvme-hosts.toml
# kernel: nvme_core.multipath=N
# limit: 600

modprobe nvme_tcp
names=nqn.2026-11.local.longshore

# connect SUBSYSTEM HOST: as host a or b, each with an identifier of its own. nvme-cli takes a second
# host for a repetition of the first, so the kernel is told directly.
connect() {
    options="transport=tcp,traddr=${NVME0%:*},trsvcid=${NVME0##*:},nqn=$names:$1"
    options="$options,hostnqn=$names:host-$2,hostid=00000000-0000-4000-8000-00000000000$2"
    echo "$options,reconnect_delay=1" >/dev/nvme-fabrics
}

# controller_of HOST: the name of its controller.
controller_of() {
    for path in /sys/class/nvme/nvme*; do
        [ "$(cat "$path/hostnqn")" != "$names:host-$1" ] || echo "${path##*/}"
    done
}

# disk_of HOST NSID
disk_of() {
    for path in /sys/class/nvme/"$(controller_of "$1")"/nvme*n*; do
        [ "$(cat "$path/nsid" 2>/dev/null)" = "$2" ] && echo "/dev/${path##*/}" && return
    done
    return 1
}

unknown_host() {
    fails connect shared c
    dmesg | tail -n 20 | grep "is not allowed, hostnqn: $names:host-c"
}

discovery_by_name() {
    nvme_to "$NVME0" discover --hostnqn="$names:host-b" \
        --hostid=00000000-0000-4000-8000-00000000000b >/tmp/found.b
    nvme_to "$NVME0" discover --hostnqn="$names:host-c" \
        --hostid=00000000-0000-4000-8000-00000000000c >/tmp/found.c
    grep -q "$names:shared" /tmp/found.b
    grep -q "$names:masked" /tmp/found.b
    fails grep -q "$names:shared" /tmp/found.c
    grep -q "$names:masked" /tmp/found.c
}

own_namespaces() {
    connect masked a
    eventually 10 disk_of a 2
    fails disk_of a 1
    [ "$(blockdev --getsize64 "$(disk_of a 2)")" = $((32 << 20)) ]
    nvme disconnect -n "$names:masked"
}

read_only() {
    connect masked b
    eventually 10 disk_of b 1
    disk=$(disk_of b 1)
    [ "$(cat "/sys/block/${disk#/dev/}/ro")" = 1 ]
    dd if="$disk" of=/dev/null bs=64k count=4 iflag=direct
    has_status 0x20 write_by "$disk"
    nvme disconnect -n "$names:masked"
}

write_by() {
    nvme write "$1" --start-block=0 --block-count=7 --data-size=4096 --data=/tmp/data
}

read_by() {
    nvme read "$1" --start-block=0 --block-count=7 --data-size=4096 --data=/tmp/back
}

two_hosts() {
    connect shared a
    connect shared b
    eventually 10 disk_of a 1
    eventually 10 disk_of b 1
}

registered() {
    nvme resv-register "$a" --nrkey=0xa --rrega=0
    nvme resv-register "$b" --nrkey=0xb --rrega=0
    # Again with another key is a conflict, with the same key is not.
    has_status 0x83 nvme resv-register "$b" --nrkey=0xbb --rrega=0
    report
    [ "$(value regctl)" = 2 ]
    grep -q "rkey *: *a\$" /tmp/report
    grep -q "rkey *: *b\$" /tmp/report
}

report() {
    nvme resv-report "$a" --eds >/tmp/report
    cat /tmp/report
}

value() {
    sed -n "s/^ *$1 *: *//p" /tmp/report | head -n 1
}

write_exclusive() {
    nvme resv-acquire "$a" --crkey=0xa --rtype=1 --racqa=0
    report
    [ "$(value rtype)" = 1 ]
    write_by "$a"
    has_status 0x83 write_by "$b"
    fails dd if=/dev/zero of="$b" bs=4k count=1 oflag=direct
    read_by "$b"
    has_status 0x83 nvme resv-acquire "$b" --crkey=0xb --rtype=1 --racqa=0
    has_status 0x83 nvme resv-release "$a" --crkey=0xb --rtype=1 --rrela=0
    nvme resv-release "$a" --crkey=0xa --rtype=1 --rrela=0
    write_by "$b"
}

exclusive_access() {
    nvme resv-acquire "$b" --crkey=0xb --rtype=2 --racqa=0
    has_status 0x83 read_by "$a"
    has_status 0x83 write_by "$a"
    has_status 0x83 nvme write-zeroes "$a" --start-block=0 --block-count=0
    has_status 0x83 nvme dsm "$a" --ad --slbs=0 --blocks=8
    read_by "$b"
    nvme resv-release "$b" --crkey=0xb --rtype=2 --rrela=0
    read_by "$a"
}

registrants_only() {
    nvme resv-acquire "$a" --crkey=0xa --rtype=3 --racqa=0
    write_by "$b"
    nvme resv-register "$b" --crkey=0xb --rrega=1
    has_status 0x83 write_by "$b"
    nvme resv-register "$b" --nrkey=0xb --rrega=0
    write_by "$b"
}

preempted() {
    nvme resv-acquire "$b" --crkey=0xb --prkey=0xa --rtype=1 --racqa=1
    report
    [ "$(value regctl)" = 1 ]
    [ "$(value rtype)" = 1 ]
    has_status 0x83 write_by "$a"
    write_by "$b"
    # Host a is told so: 1 is "registration preempted", which nvme-cli 2.3 words differently.
    nvme resv-notif-log "/dev/$(controller_of a)" | tee /tmp/notice
    grep -q "Page Type[[:space:]]*: 1 " /tmp/notice
}

replaced() {
    nvme resv-register "$b" --crkey=0xb --nrkey=0xbb --rrega=2
    has_status 0x83 nvme resv-release "$b" --crkey=0xb --rtype=1 --rrela=0
    write_by "$b"
    has_status 0x83 write_by "$a"
    nvme resv-register "$b" --crkey=0xbb --nrkey=0xb --rrega=2
}

# Host a comes back and takes the reservation with the commands of b, which does the same to a.
preempted_with_abort() {
    nvme resv-register "$a" --nrkey=0xa --rrega=0
    nvme resv-acquire "$a" --crkey=0xa --prkey=0xb --rtype=2 --racqa=2
    write_by "$a"
    has_status 0x83 read_by "$b"
    nvme resv-register "$b" --nrkey=0xb --rrega=0
    (while dd if="$a" of=/dev/null bs=1M count=4 iflag=direct 2>/dev/null; do :; done) &
    reader=$!
    nvme resv-acquire "$b" --crkey=0xb --prkey=0xa --rtype=2 --racqa=2
    wait $reader # it reads until it is kept out
    has_status 0x83 read_by "$a"
    report
    [ "$(value regctl)" = 1 ]
}

survives_restart() {
    nvme resv-register "$b" --crkey=0xb --nrkey=0xb --rrega=2 --cptpl=3
    report
    [ "$(value ptpls)" = 1 ]
    host stop-server
    host start-server
    eventually 15 writes "$b"
    has_status 0x83 write_by "$a"
    report
    [ "$(value rtype)" = 2 ]
    [ "$(value ptpls)" = 1 ]
}

writes() {
    write_by "$1" >/dev/null 2>&1
}

cleared() {
    nvme resv-register "$a" --nrkey=0xa --rrega=0
    nvme resv-release "$a" --crkey=0xa --rrela=1
    report
    [ "$(value regctl)" = 0 ]
    [ "$(value rtype)" = 0 ]
    write_by "$a"
    write_by "$b"
}

dd if=/dev/urandom of=/tmp/data bs=4k count=1 2>/dev/null
check unknown-host-is-refused unknown_host
check discovery-shows-what-a-host-may-see discovery_by_name
check namespaces-of-its-own own_namespaces
check read-only read_only
check two-hosts two_hosts
a=$(disk_of a 1)
b=$(disk_of b 1)
check registrations registered
check write-exclusive write_exclusive
check exclusive-access exclusive_access
check registrants-only registrants_only
check preempted preempted
check key-is-replaced replaced
check preempted-with-abort preempted_with_abort
check reservation-survives-a-restart survives_restart
check cleared cleared
check disconnect nvme disconnect -n "$names:shared"
