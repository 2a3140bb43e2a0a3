# Linux's NVMe target authenticates Longshore's clients by DH-HMAC-CHAP, and proves itself to them.
# secret: host0 DHHC-1:00:1Ju7lFmOOA1/xNaBos1GH0dkTWupPyOe0SnySNGsCd04mIq6:
# secret: host1 DHHC-1:01:vhq1GfS/As96O21/uB2III1iQoCdsqNXqjCLqwQZsglyq/ay:
# secret: host2 DHHC-1:02:74vyG2WehCb4CkbO+MhdZIBNOGwZnKGhGVLWL5+AzvUmK3tzh1OXGfnJ+XHQ4yfrGInLuA==:
# secret: host3 DHHC-1:03:b3X3omC6DtgbqFZ2oLxYbJvetuUvNgViW+bt5Ebz5waWhl4E76yobBqIMgcOOfGaaDIN6XEPzD7bHR5ghom2sRATG7U=:
# secret: controller DHHC-1:01:1c8DrSkRkaakPKtBfP2R4j+CfyXXnmb3u0FtTZYq3+CQsfXt:
# guest: secure
# servers: guest
# portals: 0
# forwards: 1
# limit: 600

host0=DHHC-1:00:1Ju7lFmOOA1/xNaBos1GH0dkTWupPyOe0SnySNGsCd04mIq6:
host1=DHHC-1:01:vhq1GfS/As96O21/uB2III1iQoCdsqNXqjCLqwQZsglyq/ay:
host2=DHHC-1:02:74vyG2WehCb4CkbO+MhdZIBNOGwZnKGhGVLWL5+AzvUmK3tzh1OXGfnJ+XHQ4yfrGInLuA==:
host3=DHHC-1:03:b3X3omC6DtgbqFZ2oLxYbJvetuUvNgViW+bt5Ebz5waWhl4E76yobBqIMgcOOfGaaDIN6XEPzD7bHR5ghom2sRATG7U=:
controller=DHHC-1:01:1c8DrSkRkaakPKtBfP2R4j+CfyXXnmb3u0FtTZYq3+CQsfXt:
name=nqn.2026-11.local.longshore.peer:disks
client=nqn.2026-11.local.longshore:client
url=nvme+tcp://{forward0}/$name/1

set_up() {
    set_up_nvmet_disk "$name"
    mkdir "$NVMET/hosts/$client"
    ln -s "$NVMET/hosts/$client" "$NVMET/subsystems/$name/allowed_hosts/$client"
    printf %s $controller >"$NVMET/hosts/$client/dhchap_ctrl_key"
    nvmet_port 1 "$FORWARD0" "$name"
}

# target_wants SECRET HASH GROUP
target_wants() {
    printf %s "$1" >"$NVMET/hosts/$client/dhchap_key"
    printf 'hmac(%s)' "$2" >"$NVMET/hosts/$client/dhchap_hash"
    printf %s "$3" >"$NVMET/hosts/$client/dhchap_dhgroup"
}

# moves_data OPTION…: to the disk and back, compared with what is on the other side.
moves_data() {
    dd if=/dev/zero of=/dev/nullb0 bs=1M count=2 oflag=direct 2>/dev/null
    host client copy "{folder}/source" "$url" --host-nqn $client "$@"
    [ "$(dd if=/dev/nullb0 bs=1M count=2 iflag=direct 2>/dev/null | sha256sum)" = "$(host sha256 source)  -" ]
}

# one_way FILE SECRET HASH GROUP
one_way() {
    target_wants "$2" "$3" "$4"
    moves_data --dhchap-secret-file "{folder}/$1"
}

both_ways() {
    target_wants "$2" "$3" "$4"
    moves_data --dhchap-secret-file "{folder}/$1" --dhchap-ctrl-secret-file "{folder}/controller"
}

# refused WHY OPTION…: the client gives this reason.
refused() {
    why=$1
    shift
    target_wants $host1 sha256 $group
    fails host client info "$url" --host-nqn $client "$@" >/tmp/refused
    cat /tmp/refused
    grep -qE "$why" /tmp/refused
}

host noise source 2M
check target set_up
check without-a-group one_way host0 $host0 sha256 null
check ffdhe2048 one_way host1 $host1 sha384 ffdhe2048
check ffdhe3072 one_way host2 $host2 sha512 ffdhe3072
check secret-of-64-bytes one_way host3 $host3 sha256 null
check both-ways-without-a-group both_ways host0 $host0 sha256 null
check both-ways-by-ffdhe2048 both_ways host1 $host1 sha256 ffdhe2048
check both-ways-by-ffdhe3072 both_ways host2 $host2 sha384 ffdhe3072
# nvmet 6.12 may close the connection before its answer to a wrong proof has left.
wrong='compare the secrets of host and controller|lost during Authentication Receive'
for group in null ffdhe2048; do
    check no-secret-is-refused-$group refused 'give the secret of this host'
    check wrong-secret-is-refused-$group \
        refused "$wrong" --dhchap-secret-file "{folder}/host0"
    check client-refuses-wrong-secret-of-controller-$group refused 'has not proved that it knows its secret' \
        --dhchap-secret-file "{folder}/host1" --dhchap-ctrl-secret-file "{folder}/host0"
done
