# Connections and servers that die under load: the initiator recovers by itself, and nothing that
# was acknowledged as flushed is lost.
# volume: disk0 64M
# limit: 1000

start_iscsid
new_node "$PORTAL0" node.conn[0].timeo.noop_out_interval=2 node.conn[0].timeo.noop_out_timeout=2
check login log_in "$PORTAL0"
disk=$(wait_for_disk)
seed=1

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
