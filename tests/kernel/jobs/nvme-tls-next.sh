# Both cipher suites with Linux as host and as target: Debian 14's GnuTLS knows TLS_AES_256_GCM_SHA384, too, and its libnvme
# derives keys by the standard.
# volume: disk0 64M
# volume: disk1 64M
# secret: long NVMeTLSkey-1:02:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAhIiMkJSYnKCkqKywtLi8wyg3Bcw==:
# secret: short NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:
# guest: next
# portals: 0
# nvme: 1
# forwards: 1
# config: nvme-tls-next.toml
# limit: 600

long=NVMeTLSkey-1:02:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAhIiMkJSYnKCkqKywtLi8wyg3Bcw==:
short=NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:
names=nqn.2026-11.local.longshore
self=$(cat /etc/nvme/hostnqn)
peer=nqn.2026-11.local.longshore.peer:disks

modprobe nvme_tcp

# as_host SUBSYSTEM KEY VERSION: Linux writes and reads.
as_host() {
    SUBSYSTEM=$names:$1
    forget_tls_keys
    tls_key "$2" "$self" "$SUBSYSTEM" "$3"
    nvme_connect "$NVME0" --nr-io-queues=1 --tls
    cat /proc/keys
    moves_data "$(namespace 1)"
    nvme_disconnect
}

# as_target FILE KEY VERSION: Longshore's client writes to what Linux serves.
as_target() {
    forget_tls_keys
    tls_key "$2" "$self" "$peer" "$3"
    dd if=/dev/zero of=/dev/nullb0 bs=1M count=4 oflag=direct 2>/dev/null
    host client copy "{folder}/source" "nvme+tcp://{forward0}/$peer/1" --host-nqn "$self" \
        --tls-key-file "{folder}/$1" --tls-identity "$3"
    [ "$(dd if=/dev/nullb0 bs=1M count=4 iflag=direct 2>/dev/null | sha256sum)" = "$(host sha256 source)  -" ]
}

set_up() {
    set_up_nvmet_disk $peer
    echo 1 >$NVMET/subsystems/$peer/attr_allow_any_host
    nvmet_port 1 "$FORWARD0" $peer tls1.3 required
}

host noise source 4M
check handshakes-daemon start_tlshd
check target set_up
for version in 1 0; do
    check sha256-as-host-$version as_host sha256 $short $version
    check sha384-as-host-$version as_host sha384 "$long" $version
    check sha256-as-target-$version as_target short $short $version
    check sha384-as-target-$version as_target long "$long" $version
done
cat /tmp/tlshd.log
