# Connections, controllers and servers that die under load: the host recovers by itself, and
# nothing that was acknowledged as flushed is lost.
# volume: disk0 64M
# nvme: 2
# processors: 2
# limit: 1200

modprobe nvme_tcp
seed=1

connect() {
    nvme_connect "$NVME0" --nr-io-queues=2 --keep-alive-tmo=2 --reconnect-delay=1 \
        --ctrl-loss-tmo=120
}

cut_twice() {
    host cut nvme0
    sleep 0.3
    host restore nvme0
    sleep 2
    host cut nvme0
    sleep 0.3
    host restore nvme0
    eventually 10 nvme_is live
}

# The host's keep-alive finds it, and its attempts to reconnect fail until the path is back.
silence() {
    host silence nvme0
    eventually 10 nvme_is connecting
    host cut nvme0
    host restore nvme0
    eventually 10 nvme_is live
}

kill_and_restart() {
    host kill-server
    sleep 1
    host start-server
    eventually 10 nvme_is live
}

stop_and_restart() {
    host stop-server
    sleep 1
    host start-server
    eventually 10 nvme_is live
}

# Longer than the host's keep-alive time-out.
stall() {
    host sleep-server 4
    eventually 10 nvme_is live
}

resets() {
    for _ in 1 2 3; do
        nvme reset "/dev/$(nvme_controllers)"
        eventually 5 nvme_is live
        nvme ns-rescan "/dev/$(nvme_controllers)"
        sleep 0.5
    done
}

# A controller whose host has fallen silent is gone from the list that another one shows.
silent_controller_is_freed() {
    nvme_to "$NVME1" connect -n "$SUBSYSTEM" --keep-alive-tmo=60 --reconnect-delay=1
    eventually 10 nvme_is live
    silent=$(cat /sys/class/nvme/nvme0/cntlid)
    witness=$(cat /sys/class/nvme/nvme1/cntlid)
    lists "$silent"
    lists "$witness"
    host silence nvme0
    eventually 15 eval "! lists $silent"
    lists "$witness"
    host cut nvme0
    host restore nvme0
    eventually 10 nvme_is live
}

# lists NUMBER: whether the second controller's list of controllers has this one.
lists() {
    nvme list-ctrl /dev/nvme1 | grep -q ":0x$(printf %x "$1")\$"
}

# Both controllers are paths to one disk: writes go on when one of them dies.
path_dies() {
    host cut nvme0
    eventually 10 path_is connecting
    cut=$(wc -l </tmp/acknowledged)
    sleep 2
    [ "$(wc -l </tmp/acknowledged)" -gt "$cut" ]
    host restore nvme0
    eventually 10 nvme_is live
}

path_is() {
    [ "$(cat /sys/class/nvme/nvme0/state)" = "$1" ]
}

# Errors for what was under way, and nothing left behind.
disconnect_under_load() {
    fio --name=load --filename="$disk" --rw=randrw --bs=4k --direct=1 --ioengine=libaio \
        --iodepth=16 --time_based --runtime=20 --minimal >/tmp/fio.log 2>&1 &
    writer=$!
    sleep 2
    nvme_disconnect
    fails wait $writer
    connect
    eventually 5 namespace 1
}

check connect connect
disk=$(namespace 1)
durability=flush
check connection-is-cut under_load cut_twice
check connection-falls-silent under_load silence
check server-is-killed under_load kill_and_restart
durability=fua
check server-is-killed-during-fua-writes under_load kill_and_restart
check server-stops-in-an-orderly-way under_load stop_and_restart
check server-stalls under_load stall
durability=flush
check controller-is-reset under_load resets
check silent-controller-is-freed silent_controller_is_freed
check one-of-two-paths-dies under_load path_dies
check disconnect-under-load disconnect_under_load
check disconnect nvme_disconnect
