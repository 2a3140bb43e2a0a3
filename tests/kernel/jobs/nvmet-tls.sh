# Linux's NVMe target over TLS, with tlshd: Longshore's clients move data to it and from it, in both derivations of keys
# and both versions of identities; what is refused; discovery.
# secret: key NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:
# secret: other NVMeTLSkey-1:01:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:
# guest: secure
# servers: guest
# portals: 0
# forwards: 2
# limit: 600

key=NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:
name=nqn.2026-11.local.longshore.peer:disks
client=nqn.2026-11.local.longshore:client
discovery=nqn.2014-08.org.nvmexpress.discovery
compat="--host-nqn $client --tls-key-file {folder}/key --tls-derivation compat"

# One port that wants TLS, one that takes it.
set_up() {
    set_up_nvmet_disk "$name"
    echo 1 >"$NVMET/subsystems/$name/attr_allow_any_host"
    nvmet_port 1 "$FORWARD0" "$name" tls1.3 required
    nvmet_port 2 "$FORWARD1" "$name" tls1.3 'not required'
}

# on_disk MEBIBYTES: the checksum of the disk's begin. The target writes past the page cache.
on_disk() {
    dd if=/dev/nullb0 bs=1M count="$1" iflag=direct 2>/dev/null | sha256sum
}

# moves_data PORT OPTION…: to the disk and back, compared with what is on the other side.
moves_data() {
    url=nvme+tcp://{forward$1}/$name/1
    shift
    host client copy "{folder}/source" "$url" "$@"
    [ "$(on_disk 8)" = "$(host sha256 source)  -" ]
    dd if=/dev/urandom of=/dev/nullb0 bs=1M count=16 oflag=direct 2>/dev/null
    host noise back 16M
    host client copy "$url" "{folder}/back" --force "$@"
    [ "$(on_disk 16)" = "$(host sha256 back)  -" ]
}

# refused WHY OPTION…: at the first port.
refused() {
    why=$1
    shift
    fails host client info "nvme+tcp://{forward0}/$name/1" "$@" >/tmp/refused
    cat /tmp/refused
    grep -q "$why" /tmp/refused
}

compat() {
    forget_tls_keys
    tls_key $key $client "$name"
    moves_data 0 $compat
    grep TlsRxSw /proc/net/tls_stat
}

# Two queues, 16 commands at a time, each block with what was written to it last.
load() {
    host client bench "nvme+tcp://{forward0}/$name/1" --rw randrw --bs 4k,64k --iodepth 16 --queues 2 --size 16M \
        --verify $compat
}

version_0() {
    forget_tls_keys
    tls_key $key $client "$name" 0
    moves_data 0 $compat --tls-identity 0
}

# As libnvme from 1.16 on would give it to the kernel.
standard() {
    forget_tls_keys
    derived_tls_key key $client "$name"
    moves_data 0 --host-nqn $client --tls-key-file "{folder}/key"
}

either_way() {
    forget_tls_keys
    tls_key $key $client "$name"
    moves_data 1 --host-nqn $client
    moves_data 1 $compat
}

plain() {
    refused 'lost during initialization' --host-nqn $client
}

# The same identity as of the right key, which version 1 does not have.
wrong_key() {
    forget_tls_keys
    tls_key $key $client "$name" 0
    refused 'during the TLS handshake' --host-nqn $client --tls-key-file "{folder}/other" --tls-derivation compat --tls-identity 0
}

unknown_identity() {
    forget_tls_keys
    tls_key $key $client "$name"
    refused 'during the TLS handshake' --host-nqn $client --tls-key-file "{folder}/other" --tls-derivation compat
}

# A client that does not find a subsystem asks for those that there are.
discovery_over_tls() {
    forget_tls_keys
    tls_key $key $client $discovery
    tls_key $key $client "$name-gone"
    fails host client info "nvme+tcp://{forward0}/$name-gone/1" $compat | tee /tmp/found
    grep -q "use one of $name\$" /tmp/found
}

host noise source 8M
check handshakes-daemon start_tlshd
check target set_up
check data compat
check verified-load load
check version-0-identity version_0
check standard-derivation standard
check either-way either_way
check plain-is-refused plain
check wrong-key-is-refused wrong_key
check unknown-identity-is-refused unknown_identity
check discovery discovery_over_tls
cat /tmp/tlshd.log
