# What nvme-cli sees and does: discovery, connections, identity, logs, features, properties, and
# each I/O command, with blocks of 512 and of 4096 bytes.
# volume: disk0 64M
# volume: disk1 64M block-size=4096
# nvme: 1
# processors: 2
# limit: 600

modprobe nvme_tcp

# field FILE NAME: the value in a line "NAME : VALUE" of nvme-cli.
field() {
    sed -n "s/^$2[[:space:]]*: *//p" "$1" | head -n 1
}

discovery() {
    nvme_to "$NVME0" discover >/tmp/found
    cat /tmp/found
    grep -q "^subnqn: *$SUBSYSTEM\$" /tmp/found
    grep -q "^traddr: *${NVME0%:*}\$" /tmp/found
    grep -q "^trsvcid: *${NVME0##*:}\$" /tmp/found
}

connect_all() {
    nvme_to "$NVME0" connect-all
    eventually 10 nvme_is live
    eventually 10 namespace 1
    eventually 10 namespace 2
    nvme_disconnect
}

# A discovery controller that stays, with a keep-alive every second.
discovery_stays() {
    nvme_to "$NVME0" discover --persistent --keep-alive-tmo=2 >/dev/null
    SUBSYSTEM=nqn.2014-08.org.nvmexpress.discovery
    sleep 5
    nvme_is live
    if dmesg | grep -i -E "keep.alive.*(error|failed)"; then return 1; fi
    nvme_disconnect
}

connect() {
    nvme_connect "$NVME0" --nr-io-queues=2
    [ "$(cat "/sys/class/nvme/$(nvme_controllers)/queue_count")" = 3 ]
    eventually 10 namespace 2
}

lists() {
    nvme list | tee /tmp/list
    grep -q "$small.*512 *B" /tmp/list
    grep -q "$large.*4 *KiB" /tmp/list
    nvme list-subsys | tee /tmp/list
    grep -q "$SUBSYSTEM" /tmp/list
    grep -q "tcp traddr=${NVME0%:*},trsvcid=${NVME0##*:}.* live" /tmp/list
}

# Bits of what the controller supports: SGLs with offset, compare and write, and each command.
controller() {
    nvme id-ctrl "$controller" >/tmp/id
    cat /tmp/id
    [ "$(field /tmp/id subnqn)" = "$SUBSYSTEM" ]
    [ "$(field /tmp/id nn)" -ge 2 ]
    [ "$(field /tmp/id cntrltype)" = 1 ]
    [ "$(field /tmp/id kas)" -gt 0 ]
    [ "$(field /tmp/id sqes)" = 0x66 ]
    [ "$(field /tmp/id cqes)" = 0x44 ]
    [ $(($(field /tmp/id oncs) & 0x1ad)) = $((0x1ad)) ]
    [ $(($(field /tmp/id fuses) & 1)) = 1 ]
    [ $(($(field /tmp/id sgls) & 0x100003)) -gt $((0x100000)) ]
    [ $(($(field /tmp/id cmic) & 0xa)) = 10 ]
    nvme nvm-id-ctrl "$controller"
}

namespaces() {
    nvme id-ns "$small" >/tmp/id.small
    nvme id-ns "$large" >/tmp/id.large
    cat /tmp/id.small
    [ $(($(field /tmp/id.small nsze))) = 131072 ]
    [ $(($(field /tmp/id.large nsze))) = 16384 ]
    grep -q "lbads:9 .*in use" /tmp/id.small
    grep -q "lbads:12 .*in use" /tmp/id.large
    [ $(($(field /tmp/id.small nmic) & 1)) = 1 ]
    nvme list-ns "$controller" | tee /tmp/list
    grep -q ":0x1\$" /tmp/list
    grep -q ":0x2\$" /tmp/list
    nvme list-ns --all "$controller"
    nvme list-ctrl "$controller"
    nvme cmdset-ind-id-ns "$controller" --namespace-id=1
}

# A UUID and an NGUID, by which the host tells namespaces apart.
descriptors() {
    for disk in "$small" "$large"; do
        nvme ns-descs "$disk" >/tmp/descs
        cat /tmp/descs
        uuid=$(field /tmp/descs uuid)
        nguid=$(field /tmp/descs nguid)
        [ -n "$uuid" ]
        [ "$uuid" != 00000000-0000-0000-0000-000000000000 ]
        [ -n "$nguid" ]
        [ "$nguid" != 00000000000000000000000000000000 ]
        [ "$(cat "/sys/block/${disk#/dev/}/uuid")" = "$uuid" ]
        echo "$uuid $nguid" >>/tmp/identities
    done
    [ "$(cut -d ' ' -f 1 /tmp/identities | sort -u | wc -l)" = 2 ]
    [ "$(cut -d ' ' -f 2 /tmp/identities | sort -u | wc -l)" = 2 ]
}

logs() {
    for log in smart-log error-log fw-log effects-log changed-ns-list-log supported-log-pages; do
        nvme $log "$controller" >/tmp/log.$log || {
            echo "$log failed"
            return 1
        }
    done
    cat /tmp/log.smart-log /tmp/log.fw-log
    nvme smart-log "$small"
    [ "$(field /tmp/log.smart-log critical_warning)" = 0 ]
    nvme ana-log "$controller" >/tmp/log.ana
    cat /tmp/log.ana
    grep -q "optimized" /tmp/log.ana
    grep -q "nsid.*2" /tmp/log.ana
}

# A failed command is in the error log, newest first.
errors_are_logged() {
    has_status 0x109 nvme get-log "$controller" --log-id=0x7f --log-len=16
    nvme error-log "$controller" --log-entries=1 >/tmp/log
    cat /tmp/log
    [ "$(field /tmp/log error_count)" -gt 0 ]
    grep -q "^status_field.*Invalid Log Page" /tmp/log
}

features() {
    nvme get-feature "$controller" --feature-id=7 >/tmp/feature
    cat /tmp/feature
    # Arbitration, power management, error recovery, write cache, atomicity, events, keep-alive.
    for feature in 1 2 5 6 10 11 15; do
        nvme get-feature "$controller" --feature-id=$feature || {
            echo "feature $feature failed"
            return 1
        }
    done
    nvme get-feature "$controller" --feature-id=14 --data-len=8
    nvme get-feature "$controller" --feature-id=0x81 --data-len=16 --cdw11=1 | tee /tmp/feature
    # As etc/nvme/hostid has it.
    grep -q "5c 1a 7b 4e" /tmp/feature
}

# Namespace events off and on again, and the time.
features_are_set() {
    nvme get-feature "$controller" --feature-id=11 >/tmp/before
    before=0x$(sed -n 's/.*value:0*\(x\|\)//p' /tmp/before)
    nvme set-feature "$controller" --feature-id=11 --value=0
    nvme get-feature "$controller" --feature-id=11 | grep -q "value:\(0x\)*00*\$"
    nvme set-feature "$controller" --feature-id=11 --value="$((before))"
    nvme get-feature "$controller" --feature-id=11 | cmp - /tmp/before
    printf '\0\0\0\0\1\0\0\0' >/tmp/time
    nvme set-feature "$controller" --feature-id=14 --value=0 --data-len=8 --data=/tmp/time
    nvme get-feature "$controller" --feature-id=14 --data-len=8 --raw-binary >/tmp/back
    [ "$(dd if=/tmp/back bs=1 skip=4 count=1 2>/dev/null | od -An -tu1 | tr -d ' ')" = 1 ]
    has_status 2 nvme get-feature "$controller" --feature-id=0x7f
}

# Version, configuration (enabled) and status (ready). The verb show-regs of nvme-cli 2.3 wants an
# answer for each register that a PCI device has.
properties() {
    nvme show-regs "$controller" --human-readable | tee /tmp/registers
    grep -q "NVMe specification [2-9]" /tmp/registers
    grep -q "(RDY): Yes" /tmp/registers
    [ "$((0x$(property 0x8)))" -ge $((0x10400)) ]
    [ "$((0x$(property 0x14) & 1))" = 1 ]
    [ "$((0x$(property 0x1c) & 3))" = 1 ]
    has_status 2 nvme get-property "$controller" --offset=0x7000
}

property() {
    nvme get-property "$controller" --offset="$1" | sed 's/.*value: *//'
}

# blocks DISK COUNT: a file with so many random blocks.
blocks() {
    size=$(blockdev --getss "$1")
    dd if=/dev/urandom of=/tmp/data bs="$size" count="$2" 2>/dev/null
}

# io VERB DISK START COUNT FILE
io() {
    [ "$1" != read ] || rm -f "$5" # the verb would leave the end of a longer file
    nvme "$1" "$2" --start-block="$3" --block-count=$(($4 - 1)) \
        --data-size=$(($4 * $(blockdev --getss "$2"))) --data="$5"
}

read_and_write() {
    for count in 1 2 7 8 9 16 17 32; do
        blocks "$1" $count
        io write "$1" 511 $count /tmp/data
        io read "$1" 511 $count /tmp/back
        cmp /tmp/data /tmp/back
    done
    blocks "$1" 4
    nvme write "$1" --start-block=0 --block-count=3 --force-unit-access \
        --data-size=$((4 * $(blockdev --getss "$1"))) --data=/tmp/data
    rm /tmp/back
    nvme read "$1" --start-block=0 --block-count=3 --force-unit-access \
        --data-size=$((4 * $(blockdev --getss "$1"))) --data=/tmp/back
    cmp /tmp/data /tmp/back
    nvme flush "$1"
}

out_of_range() {
    end=$(($(blockdev --getsize64 "$1") / $(blockdev --getss "$1")))
    blocks "$1" 2
    has_status 0x80 io read "$1" $end 1 /tmp/back
    has_status 0x80 io write "$1" $((end - 1)) 2 /tmp/data
    has_status 0x80 nvme verify "$1" --start-block=$end --block-count=0
    has_status 0x80 nvme write-zeroes "$1" --start-block=$end --block-count=0
    io read "$1" $((end - 1)) 1 /tmp/back
}

compares() {
    blocks "$1" 5
    io write "$1" 64 5 /tmp/data
    io compare "$1" 64 5 /tmp/data
    io write "$1" 69 4 /tmp/data
    has_status 0x285 io compare "$1" 65 5 /tmp/data
    nvme verify "$1" --start-block=64 --block-count=4
}

# holds DISK START COUNT FILE: the blocks hold the file's bytes.
holds() {
    io read "$1" "$2" "$3" /tmp/back
    head -c $(($3 * $(blockdev --getss "$1"))) "$4" | cmp - /tmp/back
}

zeroes() {
    blocks "$1" 24
    for deallocate in "" --deac; do
        io write "$1" 128 24 /tmp/data
        nvme write-zeroes "$1" --start-block=136 --block-count=7 $deallocate
        holds "$1" 128 8 /tmp/data
        holds "$1" 136 8 /dev/zero
        dd if=/tmp/data of=/tmp/tail bs="$(blockdev --getss "$1")" skip=16 2>/dev/null
        holds "$1" 144 8 /tmp/tail
    done
}

# Several ranges in one command; what lies between stays.
deallocates() {
    blocks "$1" 32
    io write "$1" 256 32 /tmp/data
    nvme dsm "$1" --ad --slbs=256,264,272 --blocks=4,4,4
    holds "$1" 256 4 /dev/zero
    holds "$1" 264 4 /dev/zero
    holds "$1" 272 4 /dev/zero
    dd if=/tmp/data of=/tmp/rest bs="$(blockdev --getss "$1")" skip=4 2>/dev/null
    holds "$1" 260 4 /tmp/rest
    # Advice alone changes nothing.
    nvme dsm "$1" --idr --slbs=260 --blocks=4
    holds "$1" 260 4 /tmp/rest
}

copies() {
    blocks "$1" 16
    io write "$1" 512 16 /tmp/data
    # Counts of this verb are zero-based: two ranges of four blocks, in the other order.
    nvme copy "$1" --sdlba=600 --slbs=516,512 --blocks=3,3
    dd if=/tmp/data of=/tmp/second bs="$(blockdev --getss "$1")" skip=4 2>/dev/null
    holds "$1" 600 4 /tmp/second
    holds "$1" 604 4 /tmp/data
}

refused() {
    has_status 1 nvme write-uncor "$small" --start-block=0 --block-count=0
    has_status 1 nvme io-passthru "$small" --opcode=0x7d --namespace-id=1
    has_status 1 nvme admin-passthru "$controller" --opcode=0xc7
    has_status 1 nvme format "$controller" --namespace-id=1 --lbaf=0 --force
}

# By io_uring to the namespace's character device, polled and with fixed buffers too.
uring_commands() {
    for option in "" --hipri --fixedbufs; do
        fio --name=uring --filename="/dev/ng${small#/dev/nvme}" --ioengine=io_uring_cmd \
            --cmd_type=nvme --rw=randread --bs=4k --size=4M --iodepth=16 --number_ios=200 \
            $option --minimal
    done
}

reset() {
    blocks "$small" 8
    io write "$small" 0 8 /tmp/data
    nvme reset "$controller"
    eventually 5 nvme_is live
    nvme ns-rescan "$controller"
    holds "$small" 0 8 /tmp/data
    for _ in 1 2 3; do echo 1 >"/sys/class/nvme/${controller#/dev/}/reset_controller"; done
    eventually 5 nvme_is live
    holds "$small" 0 8 /tmp/data
}

# Disconnecting a controller that is still being set up.
hasty() {
    for _ in 1 2 3 4 5; do
        nvme_to "$NVME0" connect -n "$SUBSYSTEM"
        nvme_disconnect
    done
}

unknown_subsystem() {
    fails nvme_to "$NVME0" connect -n "$SUBSYSTEM-is-not-there"
    dmesg | tail -n 20 | grep "Connect Invalid Data Parameter.*subsysnqn"
}

check discovery discovery
check connect-all connect_all
check discovery-controller-stays discovery_stays
check connect-with-two-queues connect
small=$(namespace 1)
large=$(namespace 2)
controller=/dev/$(nvme_controllers)
check lists lists
check identify-controller controller
check identify-namespaces namespaces
check namespace-descriptors descriptors
check logs logs
check failed-commands-are-logged errors_are_logged
check features features
check features-are-set features_are_set
check properties properties
for disk in "$small" "$large"; do
    size=$(blockdev --getss "$disk")
    check read-and-write-$size read_and_write "$disk"
    check out-of-range-$size out_of_range "$disk"
    check compare-and-verify-$size compares "$disk"
    check write-zeroes-$size zeroes "$disk"
    check deallocate-$size deallocates "$disk"
    check copy-$size copies "$disk"
done
check unknown-commands-are-refused refused
check commands-by-io-uring uring_commands
check reset-and-rescan reset
check disconnect nvme_disconnect
check disconnect-at-once hasty
check unknown-subsystem-is-refused unknown_subsystem
