# Subsystems and namespaces that come and go, as the cases of blktests' group nvme with these numbers change
# the kernel's target. Each case is one check.
# nvme: 2
# api: yes
# limit: 600

SUBSYSTEM=nqn.2026-11.local.longshore:changes
HOST=$(cat /etc/nvme/hostnqn)
modprobe nvme_tcp

# longshore VERB…: the host runs this verb for the server.
longshore() {
    host longshore "$@" >/dev/null
}

# create NAME MIB [KEY=VALUE…]: a volume in a file.
create() {
    name=$1
    size=$2
    shift 2
    longshore volume create "$name" backend=file "path={folder}/$name.img" "size=${size}M" "$@"
}

# subsystem NQN [NSID:VOLUME…]
subsystem() {
    nqn=$1
    shift
    entries=
    for entry; do
        entries="$entries,{\"nsid\":${entry%%:*},\"volume\":\"${entry#*:}\"}"
    done
    longshore target create "$nqn" "namespaces=[${entries#,}]"
}

discover() {
    nvme_to "$NVME0" discover >/tmp/found
}

generation() {
    discover
    sed -n 's/^.*Generation counter \([0-9]*\).*$/\1/p' /tmp/found
}

# generation_rises WHAT: since the last time.
generation_rises() {
    before=$generation
    generation=$(generation)
    echo "generation $before, after $1 $generation"
    [ "$generation" -gt "$before" ]
}

has_namespaces() {
    count=0
    for path in /sys/block/nvme*; do
        case ${path##*/} in nvme*c*) continue ;; esac
        [ ! -e "$path" ] || count=$((count + 1))
    done
    [ "$count" = "$1" ]
}

# The log of discovery is longer than a page.
case_002() {
    generation=$(generation)
    longshore volume create shared backend=mem size=1M
    for i in $(seq 100); do subsystem "$SUBSYSTEM-$i" 1:shared; done
    generation_rises "adding subsystems"
    for i in 1 50 100; do grep -q "^subnqn: *$SUBSYSTEM-$i\$" /tmp/found; done
    # Once for each port.
    [ "$(grep -c "^subnqn: *$SUBSYSTEM-" /tmp/found)" = 200 ]
    for i in $(seq 100 -1 1); do longshore target remove "$SUBSYSTEM-$i"; done
    generation_rises "removing subsystems"
    fails grep "^subnqn: *$SUBSYSTEM-" /tmp/found
    longshore volume remove shared
}

# many_namespaces COMMAND…: makes a volume of the name that is appended.
many_namespaces() {
    generation=$(generation)
    entries=
    for i in $(seq 50); do
        "$@" "many$i"
        entries="$entries $i:many$i"
    done
    # Each entry is a word.
    # shellcheck disable=SC2086
    subsystem "$SUBSYSTEM" $entries
    generation_rises "adding a subsystem"
    grep -q "^subnqn: *$SUBSYSTEM\$" /tmp/found
    nvme_connect "$NVME0"
    eventually 30 has_namespaces 50
    longshore target set "$SUBSYSTEM" 'namespaces=[]' --drain
    eventually 30 has_namespaces 0
    nvme_disconnect
    longshore target remove "$SUBSYSTEM"
    generation_rises "removing it"
    for i in $(seq 50); do longshore volume remove "many$i"; done
}

in_memory() {
    longshore volume create "$1" backend=mem size=1M
}

in_file() {
    create "$1" 1
}

case_030() {
    create one 1
    create two 1
    subsystem "$SUBSYSTEM-1" 1:one
    longshore target allow "$SUBSYSTEM-1" "$HOST"
    generation=$(generation)
    subsystem "$SUBSYSTEM-2" 1:two
    longshore target allow "$SUBSYSTEM-2" nqn.2026-11.local.longshore:other
    generation_rises "adding a subsystem"
    fails grep "^subnqn: *$SUBSYSTEM-2" /tmp/found
    longshore target allow "$SUBSYSTEM-2" "$HOST"
    generation_rises "letting the host in"
    grep "^subnqn: *$SUBSYSTEM-2" /tmp/found
    longshore target deny "$SUBSYSTEM-2" "$HOST"
    generation_rises "taking its access away"
    fails grep "^subnqn: *$SUBSYSTEM-2" /tmp/found
    longshore target remove "$SUBSYSTEM-2"
    generation_rises "removing a subsystem"
    longshore target remove "$SUBSYSTEM-1"
    longshore volume remove one
    longshore volume remove two
}

connected() {
    create first 16
    subsystem "$SUBSYSTEM" 1:first
    nvme_connect "$NVME0"
}

# Two clients of the API at once, with the host connected.
case_051() {
    host at-once 25 volume disable first --drain / volume enable first
    eventually 10 namespace 1
    dd if=/dev/zero of="$(namespace 1)" bs=64k count=4 oflag=direct
}

case_052() {
    for i in $(seq 2 21); do
        create "file$i" 16
        longshore target map "$SUBSYSTEM" "file$i" --number "$i"
        eventually 5 namespace "$i"
        longshore target unmap "$SUBSYSTEM" "file$i" --drain
        eventually 5 no_namespace "$i"
        longshore volume remove "file$i"
    done
}

# A write to a namespace whose end the host has not been told.
case_055() {
    controller=/dev/$(nvme_controllers)
    mask=$(nvme get-feature "$controller" --feature-id=0xb | sed -n 's/.*value: *0*x*\([0-9a-f]*\).*/\1/p')
    nvme set-feature "$controller" --feature-id=0xb --value=$((0x$mask & 0xfeff))
    disk=$(namespace 1)
    dd if=/dev/urandom of=/tmp/data bs=512 count=1
    longshore volume disable first --drain
    sleep 1
    [ "$(namespace 1)" = "$disk" ]
    # An inactive identifier is an invalid field (NVMe 2.0 §3.2.1.3).
    has_status 0x2 nvme write "$disk" --start-block=1 --block-count=0 --data-size=512 --data=/tmp/data
    longshore volume enable first
    nvme write "$disk" --start-block=1 --block-count=0 --data-size=512 --data=/tmp/data
    nvme_disconnect
}

# uuid_of NUMBER
uuid_of() {
    echo "5e3d6c1a-0000-4000-8000-00000000000$1"
}

# is_volume NSID NUMBER
is_volume() {
    disk=$(namespace "$1") && [ "$(cat "/sys/block/${disk#/dev/}/uuid")" = "$(uuid_of "$2")" ]
}

# Two controllers see other volumes under three numbers, again and again.
case_058() {
    for i in 1 2 3 4 5 6; do create "remapped$i" 16 "uuid=$(uuid_of $i)"; done
    longshore target set "$SUBSYSTEM" \
        'namespaces=[{"nsid":1,"volume":"remapped1"},{"nsid":2,"volume":"remapped2"},{"nsid":3,"volume":"remapped3"}]'
    nvme_connect "$NVME0"
    nvme_connect "$NVME1"
    [ "$(nvme_controllers | wc -l)" = 2 ]
    old=0
    for round in $(seq 11); do
        new=$((3 - old))
        for nsid in $(seq 3 | shuf); do
            longshore target unmap "$SUBSYSTEM" "remapped$((nsid + old))" --drain
        done
        for nsid in $(seq 3 | shuf); do
            longshore target map "$SUBSYSTEM" "remapped$((nsid + new))" --number "$nsid" --replace
        done
        old=$new
    done
    # Linux 6.1 takes a namespace away that has become another one between two of its scans, and finds the other one
    # with the next scan.
    sleep 1
    for name in $(nvme_controllers); do nvme ns-rescan "/dev/$name"; done
    for nsid in 1 2 3; do
        eventually 10 is_volume $nsid $((nsid + old))
        dd if=/dev/zero of="$(namespace $nsid)" bs=64k count=4 oflag=direct
    done
    nvme_disconnect
}

check 002-many-subsystems case_002
check 016-many-namespaces-in-memory many_namespaces in_memory
check 017-many-namespaces-in-files many_namespaces in_file
check 030-generation-of-discovery case_030
check connect connected
check 051-enabled-and-disabled-at-once case_051
check 052-namespaces-come-and-go case_052
check 055-write-to-a-namespace-that-has-gone case_055
check 058-rapid-remapping case_058
