# Linux's NVMe host over TLS, with tlshd: data, refusals, a key that is replaced under load, a server that comes back,
# discovery, and what can be read on the way.
# volume: disk0 64M
# volume: disk1 64M
# volume: disk2 64M
# volume: disk3 64M
# secret: first NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:
# secret: other NVMeTLSkey-1:01:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:
# secret: secret DHHC-1:01:vhq1GfS/As96O21/uB2III1iQoCdsqNXqjCLqwQZsglyq/ay:
# guest: secure
# portals: 0
# nvme: 2
# processors: 2
# config: nvme-tls.toml
# limit: 600

first=NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:
other=NVMeTLSkey-1:01:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:
secret=DHHC-1:01:vhq1GfS/As96O21/uB2III1iQoCdsqNXqjCLqwQZsglyq/ay:
names=nqn.2026-11.local.longshore
SUBSYSTEM=$names:sealed
self=$(cat /etc/nvme/hostnqn)
discovery=nqn.2014-08.org.nvmexpress.discovery
text=a-text-that-nobody-on-the-way-may-read

modprobe nvme_tcp

# connect SUBSYSTEM [OPTION…]: to the first listener.
connect() {
    SUBSYSTEM=$names:$1
    shift
    nvme_connect "$NVME0" --nr-io-queues=2 --reconnect-delay=1 --ctrl-loss-tmo=120 "$@"
}

# refused WHY SUBSYSTEM [OPTION…]: at the first listener.
refused() {
    reason=$1
    SUBSYSTEM=$names:$2
    shift 2
    nvme_refused "$NVME0" "$reason" "$@"
}

# uses_key SERIAL: whether the connection was opened by this key.
uses_key() {
    [ "$((0x$(cat "/sys/class/nvme/$(nvme_controllers)/tls_key")))" = "$(($1))" ]
}

data() {
    connect sealed --tls
    uses_key "$(tls_serial NVMe1R01)"
    moves_data "$(namespace 1)"
    nvme_disconnect
}

# As libnvme from 1.16 on would give it to the kernel.
standard() {
    forget_tls_keys
    derived_tls_key first "$self" $names:sealed
    connect sealed --tls
    uses_key "$(tls_serial NVMe1R01)"
    moves_data "$(namespace 1)"
    nvme_disconnect
}

version_0() {
    forget_tls_keys
    tls_key $first "$self" $names:old 0
    connect old --tls
    uses_key "$(tls_serial NVMe0R01)"
    moves_data "$(namespace 1)"
    nvme_disconnect
}

plain() {
    refused 'is not allowed' sealed
}

# The same identity as of the right key, which version 1 does not have.
wrong_key() {
    forget_tls_keys
    tls_key $other "$self" $names:old 0
    refused 'handshake complete, error -13' old --tls
}

unknown_identity() {
    forget_tls_keys
    tls_key $other "$self" $names:sealed
    refused 'handshake complete, error -13' sealed --tls
}

no_key() {
    forget_tls_keys
    refused 'no valid PSK found' sealed --tls
}

# The handshake succeeds, as the server knows both keys; what Connect says is not what they are for.
identity_of_another_host() {
    forget_tls_keys
    tls_key $other $names:host-b $names:sealed
    refused 'is not allowed' sealed --tls --tls_key="$(($(tls_serial NVMe1R01)))"
}

identity_for_another_subsystem() {
    forget_tls_keys
    tls_key $other "$self" $names:either
    refused 'is not allowed' sealed --tls --tls_key="$(($(tls_serial NVMe1R01)))"
}

either_way() {
    forget_tls_keys
    tls_key $other "$self" $names:either
    connect either
    [ -z "$(cat "/sys/class/nvme/$(nvme_controllers)/tls_key" 2>/dev/null)" ]
    nvme_disconnect
    connect either --tls
    uses_key "$(tls_serial NVMe1R01)"
    nvme_disconnect
}

# TLS and DH-HMAC-CHAP, neither of which is enough.
authenticated_as_well() {
    forget_tls_keys
    tls_key $other "$self" $names:both
    refused 'no key' both --tls
    refused 'is not allowed' both --dhchap-secret=$secret
    connect both --tls --dhchap-secret=$secret
    uses_key "$(tls_serial NVMe1R01)"
    moves_data "$(namespace 1)"
    nvme_disconnect
}

# copies_seen SUBSYSTEM [OPTION…]: how many copies of a text pass the relay as 2 MiB of them are written and read.
copies_seen() {
    host watch nvme0 $text
    connect "$@" >/dev/null
    disk=$(namespace 1)
    yes $text | head -c 2097152 >/tmp/data
    dd if=/tmp/data of="$disk" bs=128k oflag=direct 2>/dev/null
    dd if="$disk" of=/tmp/back bs=128k count=16 iflag=direct 2>/dev/null
    cmp /tmp/data /tmp/back
    nvme_disconnect >/dev/null
    host seen nvme0 >/tmp/seen
    read -r bytes copies </tmp/seen
    [ "$bytes" -gt 4194304 ]
    echo "$copies"
}

# Without TLS they are there, all that pass in one piece at the least.
nothing_to_read() {
    forget_tls_keys
    tls_key $other "$self" $names:either
    [ "$(copies_seen either)" -gt 10000 ]
    [ "$(copies_seen either --tls)" = 0 ]
}

discovery_over_tls() {
    forget_tls_keys
    tls_key $first "$self" $discovery
    # The second listener wants TLS, so this was not plain.
    fails nvme_to "$NVME1" discover
    nvme_to "$NVME1" discover --tls >/tmp/found
    cat /tmp/found
    grep -q "$names:sealed" /tmp/found
    grep -q 'treq: *required' /tmp/found
    grep -q 'sectype: *tls13' /tmp/found
}

connect_all() {
    forget_tls_keys
    tls_key $first "$self" $discovery
    tls_key $first "$self" $names:sealed
    nvme_to "$NVME1" connect-all --tls
    SUBSYSTEM=$names:sealed
    eventually 10 nvme_is live
    nvme disconnect-all
}

# The new key beside the old one, then the host's key, then the new one alone: connections stay. The next ones come by the
# new key, and not by the old one.
replace_key() {
    second=$(nvme gen-tls-key --hmac=1 | grep -o 'NVMeTLSkey-1.*')
    host secret second "$second"
    host edit '"first"' '"first","second"'
    reload
    forget_tls_keys
    tls_key "$second" "$self" $names:sealed
    host edit '"first","second"' '"second"'
    reload
    nvme_is live
    host cut nvme0
    host restore nvme0
    eventually 60 nvme_is live
    uses_key "$(tls_serial NVMe1R01)"
}

key_is_replaced() {
    forget_tls_keys
    tls_key $first "$self" $names:sealed
    connect sealed --tls
    disk=$(namespace 1)
    under_load replace_key
}

old_key_is_refused() {
    SUBSYSTEM=$names:sealed
    nvme_disconnect
    keep=$(tls_serial NVMe1R01)
    keyctl unlink "$(($keep))" %:.nvme
    tls_key $first "$self" $names:sealed
    refused 'handshake complete, error -13' sealed --tls
}

server_comes_back() {
    forget_tls_keys
    tls_key $other "$self" $names:either
    connect either --tls
    disk=$(namespace 1)
    under_load restart
    uses_key "$(tls_serial NVMe1R01)"
    nvme_disconnect
}

restart() {
    host kill-server
    sleep 1
    host start-server
    eventually 60 nvme_is live
}

seed=1
durability=flush
check handshakes-daemon start_tlshd
check key-for-the-kernel tls_key $first "$self" $names:sealed
check data data
check standard-derivation standard
check version-0-identity version_0
check plain-is-refused plain
check wrong-key-is-refused wrong_key
check unknown-identity-is-refused unknown_identity
check no-key-is-refused no_key
check identity-of-another-host-is-refused identity_of_another_host
check identity-for-another-subsystem-is-refused identity_for_another_subsystem
check either-way either_way
check authenticated-as-well authenticated_as_well
check nothing-to-read-on-the-way nothing_to_read
check discovery discovery_over_tls
check connect-all connect_all
check key-is-replaced-under-load key_is_replaced
check old-key-is-refused old_key_is_refused
check server-comes-back server_comes_back
cat /tmp/tlshd.log
