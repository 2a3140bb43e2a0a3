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
