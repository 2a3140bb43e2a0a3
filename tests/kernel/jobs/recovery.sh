# Connections and servers that die under load: the initiator recovers by itself, and nothing that
# was acknowledged as flushed is lost.
# volume: disk0 64M
# limit: 1000

start_iscsid
new_node "$PORTAL0" node.conn[0].timeo.noop_out_interval=2 node.conn[0].timeo.noop_out_timeout=2
check login log_in "$PORTAL0"
disk=$(wait_for_disk)
seed=1

wrote_more_than() {
    [ "$(wc -l </tmp/acknowledged)" -gt "$1" ]
}

# under_load COMMAND…: runs the command while the ledger writes; nothing acknowledged may be lost.
under_load() {
    seed=$((seed + 1))
    dd if=/dev/zero of="$disk" bs=1M count=2 oflag=direct 2>/dev/null
    ledger write --device "$disk" --seed $seed --blocks 512 --seconds 100 --durability "$durability" \
        >/tmp/acknowledged &
    writer=$!
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

cut_twice() {
    host cut 0
    sleep 0.5
    host restore 0
    sleep 3
    host cut 0
    sleep 0.5
    host restore 0
}

silence() {
    host silence 0
    # The NOP-Outs of the initiator find it after 4 s and it closes the connection.
    eventually 15 session_is FAILED
    host cut 0
    host restore 0
    eventually 15 session_is LOGGED_IN
}

session_is() {
    grep -q "$1" /sys/class/iscsi_session/session*/state
}

kill_and_restart() {
    host kill-server
    sleep 1
    host start-server
}

stop_and_restart() {
    host stop-server
    sleep 1
    host start-server
}

# Longer than the interval in which the initiator asks whether the server still lives.
stall() {
    host sleep-server 3
}

durability=flush
check connection-is-cut under_load cut_twice
check connection-falls-silent under_load silence
check server-is-killed under_load kill_and_restart
durability=fua
check server-is-killed-during-fua-writes under_load kill_and_restart
check server-stops-in-an-orderly-way under_load stop_and_restart
check server-stalls under_load stall
check logout log_out "$PORTAL0"
