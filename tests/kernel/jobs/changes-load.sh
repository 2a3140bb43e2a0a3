# fio with verification on disks of both protocols, while another volume is created, mapped, resized, unmapped and
# removed.
# nvme: 1
# api: yes
# processors: 2
# limit: 400

TARGET=iqn.2026-11.local.longshore:changes
SUBSYSTEM=nqn.2026-11.local.longshore:changes
ROUNDS=10

# longshore VERB…: the host runs this verb for the server.
longshore() {
    host longshore "$@"
}

# create NAME MIB
create() {
    longshore volume create "$1" backend=file "path={folder}/$1.img" "size=$2M"
}

set_up() {
    start_iscsid
    modprobe nvme_tcp
    create first 16
    create second 16
    longshore target create "$TARGET" 'luns=[{"lun":0,"volume":"first"}]'
    longshore target create "$SUBSYSTEM" 'namespaces=[{"nsid":1,"volume":"second"}]'
    new_node "$PORTAL0"
    log_in "$PORTAL0"
    eventually 10 lun 0
    nvme_connect "$NVME0"
    eventually 10 namespace 1
}

# load NAME DISK: writes and verifies until it is stopped. What it says is in /tmp/NAME.
load() {
    fio --name="$1" --filename="$2" --size=16M --rw=randrw --bs=4k --ioengine=libaio --direct=1 --iodepth=8 \
        --verify=crc32c --verify_fatal=1 --verify_backlog=64 --time_based --runtime=3600 --minimal >"/tmp/$1" 2>&1 &
    echo $! >"/tmp/$1.pid"
}

# runs NAME: it has not ended. Nobody waits for what has.
runs() {
    grep -q '^State:.*[RSD] (' "/proc/$(cat "/tmp/$1.pid")/status"
}

# round NUMBER
round() {
    create "third$1" 1
    longshore target map "$TARGET" "third$1" --number 1
    longshore target map "$SUBSYSTEM" "third$1" --number 2
    eventually 10 lun 1
    eventually 10 namespace 2
    longshore volume resize "third$1" 2M
    longshore target unmap "$TARGET" "third$1" --drain
    longshore target unmap "$SUBSYSTEM" "third$1" --drain
    eventually 10 no_namespace 2
    # Linux keeps the disk of a logical unit that has gone.
    disk=$(lun 1)
    echo 1 >"/sys/block/${disk#/dev/}/device/delete"
    eventually 10 no_lun 1
    longshore volume remove "third$1"
    runs iscsi
    runs nvme
}

volumes_come_and_go_under_load() {
    load iscsi "$(lun 0)"
    load nvme "$(namespace 1)"
    number=0
    while [ "$number" -lt "$ROUNDS" ]; do
        number=$((number + 1))
        round "$number"
    done
}

# ended NAME: fio ends well, and has found nothing wrong.
ended() {
    kill -INT "$(cat "/tmp/$1.pid")"
    eventually 20 fails runs "$1"
    cat "/tmp/$1"
    # The fifth field is the error, the sixth what was read in KiB.
    [ "$(grep "^3;" "/tmp/$1" | cut -d ';' -f 5)" = 0 ]
    [ "$(grep "^3;" "/tmp/$1" | cut -d ';' -f 6)" -gt 0 ]
    fails grep -i "verify:\|error" "/tmp/$1"
}

check set-up set_up
check volumes-come-and-go-under-load volumes_come_and_go_under_load
check iscsi-load-has-no-error ended iscsi
check nvme-load-has-no-error ended nvme
