# Linux's NVMe host authenticates by DH-HMAC-CHAP: with and without a group, in one direction and in both, by secrets of
# each type; what is refused; again under load, with a new secret; after a server has come back.
# volume: disk0 64M
# volume: disk1 64M
# volume: disk2 64M
# volume: disk3 64M
# secret: host0 DHHC-1:00:1Ju7lFmOOA1/xNaBos1GH0dkTWupPyOe0SnySNGsCd04mIq6:
# secret: host1 DHHC-1:01:vhq1GfS/As96O21/uB2III1iQoCdsqNXqjCLqwQZsglyq/ay:
# secret: host2 DHHC-1:02:74vyG2WehCb4CkbO+MhdZIBNOGwZnKGhGVLWL5+AzvUmK3tzh1OXGfnJ+XHQ4yfrGInLuA==:
# secret: host3 DHHC-1:03:b3X3omC6DtgbqFZ2oLxYbJvetuUvNgViW+bt5Ebz5waWhl4E76yobBqIMgcOOfGaaDIN6XEPzD7bHR5ghom2sRATG7U=:
# secret: controller DHHC-1:01:1c8DrSkRkaakPKtBfP2R4j+CfyXXnmb3u0FtTZYq3+CQsfXt:
# guest: secure
# portals: 0
# nvme: 1
# processors: 2
# config: nvme-auth.toml
# limit: 600

host0=DHHC-1:00:1Ju7lFmOOA1/xNaBos1GH0dkTWupPyOe0SnySNGsCd04mIq6:
host1=DHHC-1:01:vhq1GfS/As96O21/uB2III1iQoCdsqNXqjCLqwQZsglyq/ay:
host2=DHHC-1:02:74vyG2WehCb4CkbO+MhdZIBNOGwZnKGhGVLWL5+AzvUmK3tzh1OXGfnJ+XHQ4yfrGInLuA==:
host3=DHHC-1:03:b3X3omC6DtgbqFZ2oLxYbJvetuUvNgViW+bt5Ebz5waWhl4E76yobBqIMgcOOfGaaDIN6XEPzD7bHR5ghom2sRATG7U=:
controller=DHHC-1:01:1c8DrSkRkaakPKtBfP2R4j+CfyXXnmb3u0FtTZYq3+CQsfXt:
other=DHHC-1:01:xk5JVKL8kNAheFZNeNqk4kGTfP2AYb4DPqv8J9wswXyb24Z4:
names=nqn.2026-11.local.longshore
seed=1

modprobe nvme_tcp

# connect SUBSYSTEM [OPTION…]: with one I/O queue, which authenticates as well.
connect() {
    SUBSYSTEM=$names:$1
    shift
    nvme_connect "$NVME0" --nr-io-queues=1 --reconnect-delay=1 --ctrl-loss-tmo=120 "$@"
}

# refused WHY SUBSYSTEM [OPTION…]: at the first listener.
refused() {
    reason=$1
    SUBSYSTEM=$names:$2
    shift 2
    nvme_refused "$NVME0" "$reason" "$@"
}

one_way() {
    connect "$1" --dhchap-secret="$2"
    moves_data "$(namespace 1)"
    nvme_disconnect
}

both_ways() {
    connect "$1" --dhchap-secret="$2" --dhchap-ctrl-secret="$controller"
    moves_data "$(namespace 1)"
    nvme_disconnect
}

secret_file() {
    echo "/sys/class/nvme/$(nvme_controllers)/dhchap_$1"
}

# authenticated TIMES: whether both queues have authenticated again so many times.
authenticated() {
    [ "$(host logged 'again=true')" = $(($1 * 2)) ]
}

# The kernel authenticates again on each of its queues when it gets a secret, the same or another. The connection stays.
authenticate_again() {
    echo $host1 >"$(secret_file secret)"
    eventually 60 authenticated 1
    host secret host1 $other
    reload
    echo $other >"$(secret_file secret)"
    eventually 60 authenticated 2
    [ "$(host logged 'NVMe host disconnected')" = "$disconnected" ]
    host cut nvme0
    host restore nvme0
    eventually 60 nvme_is live
}

again_under_load() {
    connect ffdhe2048 --dhchap-secret="$host1" --dhchap-ctrl-secret="$controller"
    disk=$(namespace 1)
    disconnected=$(host logged 'NVMe host disconnected')
    under_load authenticate_again
    nvme_disconnect
}

server_comes_back() {
    connect ffdhe2048 --dhchap-secret="$other" --dhchap-ctrl-secret="$controller"
    disk=$(namespace 1)
    under_load restart
    nvme_disconnect
}

restart() {
    host kill-server
    sleep 1
    host start-server
    eventually 60 nvme_is live
}

old_secret_is_refused() {
    refused 'error -129' ffdhe2048 --dhchap-secret="$host1"
}

durability=flush
check without-a-group one_way null $host0
check ffdhe2048 one_way ffdhe2048 $host1
check ffdhe3072 one_way ffdhe3072 $host2
check secret-of-64-bytes one_way long-secret $host3
check both-ways-without-a-group both_ways null $host0
check both-ways-by-ffdhe2048 both_ways ffdhe2048 $host1
check both-ways-by-ffdhe3072 both_ways ffdhe3072 $host2
check no-secret-is-refused refused 'no key' null
check wrong-secret-is-refused refused 'error -129' null --dhchap-secret=$other
check wrong-secret-with-a-group-is-refused refused 'error -129' ffdhe2048 --dhchap-secret=$other
check secret-of-another-subsystem-is-refused refused 'error -129' ffdhe3072 --dhchap-secret=$host1
check host-refuses-wrong-secret-of-controller \
    refused 'error -129' null --dhchap-secret=$host0 --dhchap-ctrl-secret=$other
check controller-without-a-secret-is-refused \
    refused 'error -129' long-secret --dhchap-secret=$host3 --dhchap-ctrl-secret=$controller
check new-secret-under-load again_under_load
check server-comes-back server_comes_back
check old-secret-is-refused old_secret_is_refused
