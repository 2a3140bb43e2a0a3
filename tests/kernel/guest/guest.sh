# Functions for jobs. Descriptors 3 and 4 are the line to and from the host, on which each message
# is one line: "check NAME passed", "check NAME failed WHY", "ask REQUEST", "verdict …".

# say WORDS: a line in the host's log.
say() {
    echo "log $*" >&3
}

# verdict passed|failed WHY: ends the job for the host.
verdict() {
    echo "verdict $*" >&3
    sync
    sleep 0.2
}

# host REQUEST: has the host do something and prints its answer; fails when the host did.
host() {
    echo "ask $*" >&3
    read -r host_status host_answer <&4
    [ -z "$host_answer" ] || echo "$host_answer"
    [ "$host_status" = ok ]
}

# check NAME COMMAND…: runs the command and reports how it went. The job goes on either way.
check() {
    check_name=$1
    shift
    # In a condition the shell would overlook failures inside (set -e has no effect there), so
    # the status is looked at afterwards.
    (set -e; "$@") >/tmp/check.log 2>&1
    check_status=$?
    if [ $check_status = 0 ]; then
        echo "check $check_name passed" >&3
    else
        echo "--- $check_name ended with status $check_status"
        tail -n 60 /tmp/check.log
        echo "check $check_name failed status $check_status: $(tail -n 1 /tmp/check.log)" >&3
    fi
}

# ends_with STATUS COMMAND…: the command must end with this status.
ends_with() {
    wanted=$1
    shift
    got=0
    "$@" || got=$?
    echo "$* ended with status $got"
    [ "$got" = "$wanted" ]
}

# fails COMMAND…: the command must fail. (set -e overlooks what `! command` says.)
fails() {
    if "$@"; then
        echo "$* succeeded"
        return 1
    fi
}

# eventually SECONDS COMMAND…: tries until the command succeeds.
eventually() {
    tries=$(($1 * 5))
    shift
    while ! "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.2
    done
}

# start_iscsid: brings the initiator up. `iscsiadm -m session` ends with 20 before, 21 after.
start_iscsid() {
    modprobe iscsi_tcp
    iscsid
    eventually 10 iscsid_is_up
}

iscsid_is_up() {
    up=0
    iscsiadm -m session >/dev/null 2>&1 || up=$?
    [ $up = 21 ] || [ $up = 0 ]
}

# new_node PORTAL [NAME=VALUE…]: makes a node record and sets its values.
new_node() {
    node=$1
    shift
    iscsiadm -m node -T "$TARGET" -p "$node,1" -o new >/dev/null
    for setting in "$@"; do
        iscsiadm -m node -T "$TARGET" -p "$node" -o update -n "${setting%%=*}" -v "${setting#*=}"
    done
}

log_in() {
    iscsiadm -m node -T "$TARGET" -p "$1" --login
}

log_out() {
    iscsiadm -m node -T "$TARGET" -p "$1" --logout
}

# disks: names of the disks behind all sessions, one per line.
disks() {
    for path in /sys/class/iscsi_session/session*/device/target*/*/block/*; do
        [ ! -e "$path" ] || echo "${path##*/}"
    done
}

# Whether there are this many disks.
has_disks() {
    [ "$(disks | wc -l)" = "$1" ]
}

# lun NUMBER: prints the disk that Linux has for this logical unit.
lun() {
    for path in /sys/class/iscsi_session/session*/device/target*/*:"$1"/block/*; do
        [ -e "$path" ] && [ -b "/dev/${path##*/}" ] && echo "/dev/${path##*/}" && return
    done
    return 1
}

no_lun() {
    ! lun "$1"
}

# wait_for_disk: prints the first disk's device once it is there with its queue limits.
wait_for_disk() {
    eventually 10 has_disks "${1:-1}"
    sleep 0.5
    echo "/dev/$(disks | head -n 1)"
}

# nvme_to LISTENER VERB [OPTION…]: an nvme-cli verb of fabrics, to that listener.
nvme_to() {
    listener=$1
    verb=$2
    shift 2
    nvme "$verb" -t tcp -a "${listener%:*}" -s "${listener##*:}" "$@"
}

# nvme_connect LISTENER [OPTION…]: makes a controller, and waits for its namespaces.
nvme_connect() {
    listener=$1
    shift
    nvme_to "$listener" connect -n "$SUBSYSTEM" "$@"
    eventually 10 nvme_is live
    eventually 10 namespace 1
}

# nvme_refused LISTENER WHY [OPTION…]: Linux must not get a controller, for this reason.
nvme_refused() {
    listener=$1
    why=$2
    shift 2
    dmesg -c >/dev/null
    fails nvme_to "$listener" connect -n "$SUBSYSTEM" --ctrl-loss-tmo=0 "$@"
    dmesg
    dmesg | grep -q "$why"
    if nvme_controllers | grep .; then return 1; fi
}

# nvme_disconnect: takes all controllers of the subsystem away.
nvme_disconnect() {
    nvme disconnect -n "$SUBSYSTEM"
    if nvme_controllers | grep .; then return 1; fi
}

# nvme_controllers: names of the controllers of the subsystem, one per line.
nvme_controllers() {
    for path in /sys/class/nvme/nvme*; do
        [ "$(cat "$path/subsysnqn" 2>/dev/null)" != "$SUBSYSTEM" ] || echo "${path##*/}"
    done
}

# Whether all controllers of the subsystem, of which there is one at least, are in this state.
nvme_is() {
    states=$(for name in $(nvme_controllers); do cat "/sys/class/nvme/$name/state"; done)
    [ "$(echo "$states" | sort -u)" = "$1" ]
}

# namespace NSID: prints the device of a namespace. Paths to it (nvme0c0n1) are passed over.
namespace() {
    for path in /sys/block/nvme*; do
        case ${path##*/} in *c*) continue ;; esac
        if [ "$(cat "$path/nsid" 2>/dev/null)" = "$1" ]; then
            [ -b "/dev/${path##*/}" ] && echo "/dev/${path##*/}"
            return
        fi
    done
    return 1
}

# has_status STATUS COMMAND…: nvme-cli must report this status of the controller. It prints it as
# "NVMe status: TEXT(0x4109)", with the bits for "do not retry" and "more" above it.
has_status() {
    wanted=$1
    shift
    if "$@" >/tmp/status.log 2>&1; then
        echo "$* succeeded"
        return 1
    fi
    cat /tmp/status.log
    found=$(sed -n 's/.*NVMe status: .*(\(0x[0-9a-f]*\)).*/\1/p' /tmp/status.log)
    [ -n "$found" ] && [ $((found & 0x7ff)) = $((wanted)) ]
}

no_namespace() {
    ! namespace "$1"
}

# reload: has the server read its files again, and waits until their contents count.
reload() {
    reloads=$(host logged 'SIGHUP: read the sizes')
    host reload-server
    eventually 20 reloaded
}

# reloaded: whether the server has read its files more than $reloads times.
reloaded() {
    [ "$(host logged 'SIGHUP: read the sizes')" -gt "$reloads" ]
}

# start_tlshd: the program that makes handshakes for the kernel, with keys of the keyring .nvme.
start_tlshd() {
    modprobe -a tls aesni_intel
    printf '[debug]\nloglevel=1\n[authenticate]\nkeyrings=.nvme\n' >/etc/tlshd.conf
    tlshd -s -c /etc/tlshd.conf >/tmp/tlshd.log 2>&1 &
    eventually 10 pidof tlshd
}

# tls_key KEY HOST SUBSYSTEM [VERSION]: gives the kernel a key in interchange format, under the identity of this version (1).
tls_key() {
    nvme check-tls-key --keydata="$1" --hostnqn="$2" --subsysnqn="$3" --identity="${4:-1}" --insert
}

# tls_serial NAME: the serial number of the key with a name like this, as options of connections take it.
tls_serial() {
    sed -n "s/^\([0-9a-f]*\) .* psk *\($1\).*/0x\1/p" /proc/keys | head -n 1
}

# forget_tls_keys: takes all keys from the kernel.
forget_tls_keys() {
    keyctl clear %:.nvme
}

# moves_data DISK: what is written comes back, past the page cache.
moves_data() {
    dd if=/dev/urandom of=/tmp/data bs=1M count=4 2>/dev/null
    dd if=/tmp/data of="$1" bs=256k oflag=direct 2>/dev/null
    dd if="$1" of=/tmp/back bs=64k count=64 iflag=direct 2>/dev/null
    cmp /tmp/data /tmp/back
    dd if=/tmp/data of="$1" bs=4k count=200 seek=2000 oflag=direct 2>/dev/null
    dd if="$1" of=/tmp/back bs=4k count=200 skip=2000 iflag=direct 2>/dev/null
    dd if=/tmp/data of=/tmp/begin bs=4k count=200 2>/dev/null
    cmp /tmp/begin /tmp/back
}

# wrote_more_than COUNT: whether the ledger that under_load started has that many generations.
wrote_more_than() {
    [ "$(wc -l </tmp/acknowledged)" -gt "$1" ]
}

# under_load COMMAND…: runs the command while the ledger writes to $disk with $durability; nothing acknowledged may be
# lost.
under_load() {
    seed=$((seed + 1))
    dd if=/dev/zero of="$disk" bs=1M count=2 oflag=direct 2>/dev/null
    : >/tmp/acknowledged
    ledger write --device "$disk" --seed $seed --blocks 512 --seconds 100 --durability "$durability" \
        >/tmp/acknowledged &
    writer=$!
    trap 'kill $writer 2>/dev/null || true' EXIT # no writer outlives a failed check
    eventually 20 wrote_more_than 0
    sleep 1
    before=$(wc -l </tmp/acknowledged)
    "$@"
    during=$(wc -l </tmp/acknowledged)
    eventually 30 wrote_more_than "$during"
    kill $writer
    wait $writer || true
    after=$(wc -l </tmp/acknowledged)
    echo "generations: $before before, $during during, $after after"
    echo 3 >/proc/sys/vm/drop_caches
    ledger check --device "$disk" --seed $seed --blocks 512 --acknowledged "$after"
}

# derived_tls_key FILE HOST SUBSYSTEM: gives the kernel a key that the host has derived by the standard.
derived_tls_key() {
    host client key derive "{folder}/$1" --host "$2" --subsystem "$3" --reveal --output json >/tmp/derived
    cat /tmp/derived
    tls_identity=$(sed -n 's/.*"identity": *"\([^"]*\)".*/\1/p' /tmp/derived)
    sed -n 's/.*"psk": *"\([^"]*\)".*/\1/p' /tmp/derived | xxd -r -p | keyctl padd psk "$tls_identity" %:.nvme
}

NVMET=/sys/kernel/config/nvmet

# set_up_nvmet_disk SUBSYSTEM: the kernel's target with one namespace of 16 MiB, /dev/nullb0, which keeps what is written.
set_up_nvmet_disk() {
    modprobe configfs
    mount -t configfs config /sys/kernel/config
    modprobe null_blk nr_devices=0
    modprobe nvmet
    modprobe nvmet_tcp
    nvmet_disk=/sys/kernel/config/nullb/nullb0
    mkdir $nvmet_disk
    echo 16 >$nvmet_disk/size
    echo 1 >$nvmet_disk/memory_backed
    echo 1 >$nvmet_disk/discard
    echo 1 >$nvmet_disk/power
    mkdir "$NVMET/subsystems/$1"
    nvmet_space=$NVMET/subsystems/$1/namespaces/1
    mkdir "$nvmet_space"
    echo /dev/nullb0 >"$nvmet_space/device_path"
    echo 1 >"$nvmet_space/enable"
}

# nvmet_port NUMBER PORT SUBSYSTEM [SECURITY REQUIREMENT]: a port of the kernel's target.
nvmet_port() {
    nvmet_port=$NVMET/ports/$1
    mkdir "$nvmet_port"
    echo tcp >"$nvmet_port/addr_trtype"
    echo ipv4 >"$nvmet_port/addr_adrfam"
    echo 0.0.0.0 >"$nvmet_port/addr_traddr"
    echo "$2" >"$nvmet_port/addr_trsvcid"
    if [ -n "${4:-}" ]; then
        echo "$4" >"$nvmet_port/addr_tsas"
        echo "$5" >"$nvmet_port/addr_treq"
    fi
    ln -s "$NVMET/subsystems/$3" "$nvmet_port/subsystems/$3"
}
