# CHAP in one direction and in both, by several algorithms, for discovery and for sessions; wrong
# secrets; initiators that a target does not let in.
# volume: disk0 64M
# config: authentication.toml
# limit: 750

start_iscsid
names=iqn.2026-11.local.longshore

# node NAME [SETTING…]: a node record for the target of that name, without any from before.
node() {
    TARGET=$names:$1
    shift
    iscsiadm -m node -T "$TARGET" -p "$PORTAL0" -o delete >/dev/null 2>&1 || true
    new_node "$PORTAL0" "$@"
}

ours="node.session.auth.authmethod=CHAP node.session.auth.username=guest
    node.session.auth.password=secret-of-the-guest"
theirs="node.session.auth.username_in=target node.session.auth.password_in=secret-of-the-target"

# A login, one megabyte in each direction, and a logout.
session() {
    log_in "$PORTAL0"
    disk=$(wait_for_disk)
    dd if=/dev/urandom of=/tmp/data bs=1M count=1 2>/dev/null
    dd if=/tmp/data of="$disk" bs=64k oflag=direct 2>/dev/null
    dd if="$disk" of=/tmp/back bs=64k count=16 iflag=direct 2>/dev/null
    cmp /tmp/data /tmp/back
    log_out "$PORTAL0"
    eventually 5 has_disks 0
}

one_way() {
    node one-way $ours
    session
}

mutual() {
    node mutual $ours $theirs
    session
}

by_algorithm() {
    node "$2" $ours "node.session.auth.chap_algs=$1"
    session
}

wrong_secret() {
    node one-way node.session.auth.authmethod=CHAP node.session.auth.username=guest \
        node.session.auth.password=not-the-secret
    ends_with 24 log_in "$PORTAL0"
}

unknown_user() {
    node one-way node.session.auth.authmethod=CHAP node.session.auth.username=nobody \
        node.session.auth.password=secret-of-the-guest
    ends_with 24 log_in "$PORTAL0"
}

no_authentication() {
    node one-way
    ends_with 24 log_in "$PORTAL0"
}

wrong_secret_of_the_target() {
    node mutual $ours node.session.auth.username_in=target \
        node.session.auth.password_in=not-the-target
    ends_with 19 log_in "$PORTAL0"
}

algorithm_not_allowed() {
    node sha3 $ours node.session.auth.chap_algs=MD5
    ends_with 24 log_in "$PORTAL0"
}

not_for_us() {
    node others
    ends_with 24 log_in "$PORTAL0"
}

no_such_target() {
    node there-is-none
    ends_with 19 log_in "$PORTAL0"
}

read_only() {
    node read-only
    log_in "$PORTAL0"
    disk=$(wait_for_disk)
    [ "$(cat "/sys/block/${disk#/dev/}/ro")" = 1 ]
    dd if="$disk" of=/dev/null bs=64k count=4 iflag=direct
    fails dd if=/dev/zero of="$disk" bs=4k count=1 oflag=direct
    log_out "$PORTAL0"
    eventually 5 has_disks 0
}

# Discovery by record of its own, which carries the account.
discovery() {
    iscsiadm -m discoverydb -t sendtargets -p "$PORTAL0" -o new >/dev/null 2>&1 || true
    for setting in authmethod=CHAP username=finder "password=$1"; do
        iscsiadm -m discoverydb -t sendtargets -p "$PORTAL0" -o update \
            -n "discovery.sendtargets.auth.${setting%%=*}" -v "${setting#*=}"
    done
    iscsiadm -m discoverydb -t sendtargets -p "$PORTAL0" --discover
}

discovery_with_secret() {
    discovery secret-of-the-finder | tee /tmp/found
    grep -q "$names:one-way" /tmp/found
    fails grep "$names:others" /tmp/found
}

discovery_with_wrong_secret() {
    ends_with 24 discovery not-the-secret
}

check one-way-chap one_way
check mutual-chap mutual
check chap-by-md5 by_algorithm MD5 one-way
check chap-by-sha1 by_algorithm SHA1 one-way
check chap-by-sha256 by_algorithm SHA256 one-way
check chap-by-sha3-256 by_algorithm SHA3-256 sha3
check wrong-secret-is-refused wrong_secret
check unknown-user-is-refused unknown_user
check no-authentication-is-refused no_authentication
check initiator-refuses-wrong-secret-of-target wrong_secret_of_the_target
check algorithm-not-allowed-is-refused algorithm_not_allowed
check initiator-without-access-is-refused not_for_us
check unknown-target-is-refused no_such_target
check read-only-access read_only
check discovery-by-chap discovery_with_secret
check discovery-with-wrong-secret-is-refused discovery_with_wrong_secret
