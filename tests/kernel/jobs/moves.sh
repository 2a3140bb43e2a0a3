# Moves from other servers, seen by the initiator: a mounted file system is written to while its server ends, its
# configuration is imported, and Longshore takes over the address. The session recovers, and the disk keeps its names.
# All servers run in the guest.
# servers: guest
# limit: 1200

IQN=iqn.2026-11.local.example:moved
INITIATOR=iqn.2026-11.local.longshore:guest
LIO=/sys/kernel/config/target
store=$LIO/core/fileio_0/disk
group=$LIO/iscsi/$IQN/tpgt_1
acl=$group/acls/$INITIATOR

# names DISK: what /dev/disk/by-id is made of, and the page of the serial number. The revision and the group of target
# ports are no part of it.
names() {
    scsi_id --export --whitelisted --replace-whitespace --device="$1" | grep -v -e ^ID_REVISION= -e ^ID_TARGET_PORT=
    scsi_id --whitelisted --page=0x80 --device="$1"
}

# attach: a session with a file system that is written to, all the time.
attach() {
    iscsiadm -m node -T $IQN -p 127.0.0.1:3260,1 -o new >/dev/null
    iscsiadm -m node -T $IQN -p 127.0.0.1:3260 -o update -n node.session.timeo.replacement_timeout -v 300
    iscsiadm -m node -T $IQN -p 127.0.0.1:3260 --login
    disk=$(wait_for_disk)
    echo "$disk" >/run/disk
    names "$disk" >/run/names-before
    cat /run/names-before
    grep -q ^ID_SERIAL= /run/names-before
    mkfs.ext4 -q "$disk"
    mount "$disk" /mnt
    dd if=/dev/urandom of=/mnt/random bs=64k count=32 2>/dev/null
    sha256sum /mnt/random >/run/sum
    rm -f /run/stop /run/written
    (
        count=0
        while [ ! -e /run/stop ]; do
            count=$((count + 1))
            echo $count | dd of=/mnt/journal oflag=append conv=notrunc,fsync 2>/dev/null || exit 1
            echo $count >/run/written.new
            mv /run/written.new /run/written
        done
        echo done >/run/stop
    ) &
    eventually 120 written_beyond 3
}

# written_beyond COUNT: whether the writer has got there.
written_beyond() {
    [ "$(cat /run/written 2>/dev/null || echo 0)" -gt "$1" ]
}

# serve: Longshore with the imported configuration, on the same files and address.
serve() {
    longshore serve --config /run/moved/longshore.toml --state-dir /run/moved/state >>/run/moved/log 2>&1 &
    echo $! >/run/moved/pid
}

# goes_on: the session recovers, nothing is lost, and the names are those of before.
goes_on() {
    written_before=$(cat /run/written)
    eventually 240 written_beyond $((written_before + 3))
    disk=$(cat /run/disk)
    names "$disk" >/run/names-after
    diff /run/names-before /run/names-after
    sha256sum -c /run/sum
}

# A rescan re-reads what the kernel knows of the disk; the vendor, the product and the device's names stay.
same_disk_after_rescan() {
    disk=$(cat /run/disk)
    device=/sys/block/${disk#/dev/}/device
    cat "$device/vendor" "$device/model" "$device/wwid" >/run/known-before
    echo 1 >"$device/rescan"
    cat "$device/vendor" "$device/model" "$device/wwid" >/run/known-after
    diff /run/known-before /run/known-after
}

# detach: the file system is whole, and has all that the writer wrote.
detach() {
    echo >/run/stop
    eventually 240 grep -q done /run/stop
    umount /mnt
    e2fsck -fn "$(cat /run/disk)"
    mount "$(cat /run/disk)" /mnt
    seq 1 "$(cat /run/written)" | cmp - /mnt/journal
    sha256sum -c /run/sum
    umount /mnt
    iscsiadm -m node -T $IQN -p 127.0.0.1:3260 --logout
    eventually 5 has_disks 0
    iscsiadm -m node -T $IQN -p 127.0.0.1:3260 -o delete
    kill "$(cat /run/moved/pid)"
    eventually 10 fails test -d "/proc/$(cat /run/moved/pid)"
    grep -v ' INFO ' /run/moved/log || true
    rm -r /run/moved
}

# --- LIO

set_up_lio() {
    mkdir -p /etc/target/pr /var/target/pr /run/lio /run/moved
    modprobe configfs
    mount -t configfs config /sys/kernel/config
    for module in target_core_mod target_core_file iscsi_target_mod; do modprobe $module; done
    mkdir -p $LIO/iscsi
    mkdir -p $store
    echo "fd_dev_name=/run/lio/disk,fd_dev_size=$((64 << 20)),fd_buffered_io=1" >$store/control
    echo 1 >$store/enable
    # As targetcli does.
    echo 1 >$store/attrib/emulate_model_alias
    echo 7f0b5e0a-9a0b-4a1e-8a51-5e3c1a2b3c4d >$store/wwn/vpd_unit_serial
    mkdir -p $group/np/127.0.0.1:3260 $group/lun/lun_0
    ln -s $store $group/lun/lun_0/disk
    echo 0 >$group/attrib/authentication
    echo 0 >$group/attrib/demo_mode_write_protect
    echo 0 >$group/attrib/generate_node_acls
    mkdir -p $acl/lun_4
    ln -s $group/lun/lun_0 $acl/lun_4/mapped
    echo 1 >$group/enable
}

# take_lio_down: as `targetcli clearconfig` does.
take_lio_down() {
    echo 0 >$group/enable
    rm $acl/lun_4/mapped
    rmdir $acl/lun_4 $acl
    rm $group/lun/lun_0/disk
    rmdir $group/lun/lun_0 $group/np/127.0.0.1:3260 $group $LIO/iscsi/$IQN $store
}

# As `targetcli saveconfig` writes it.
save_lio() {
    cat >/run/moved/saveconfig.json <<EOF
{
  "fabric_modules": [],
  "storage_objects": [
    {
      "aio": false,
      "attributes": {
        "block_size": 512,
        "emulate_fua_write": 1,
        "emulate_model_alias": 1,
        "emulate_tpu": 0,
        "emulate_write_cache": 1,
        "is_nonrot": 0,
        "queue_depth": 128
      },
      "dev": "/run/lio/disk",
      "name": "disk",
      "plugin": "fileio",
      "size": $((64 << 20)),
      "write_back": true,
      "wwn": "$(sed 's/^[^:]*: //' $store/wwn/vpd_unit_serial)"
    }
  ],
  "targets": [
    {
      "fabric": "iscsi",
      "tpgs": [
        {
          "attributes": {
            "authentication": 0,
            "demo_mode_write_protect": 0,
            "generate_node_acls": 0
          },
          "enable": true,
          "luns": [
            {
              "alias": "mapped",
              "index": 0,
              "storage_object": "/backstores/fileio/disk"
            }
          ],
          "node_acls": [
            {
              "mapped_luns": [
                {
                  "alias": "mapped",
                  "index": 4,
                  "tpg_lun": 0,
                  "write_protect": false
                }
              ],
              "node_wwn": "$INITIATOR"
            }
          ],
          "parameters": {},
          "portals": [
            {
              "ip_address": "127.0.0.1",
              "iser": false,
              "offload": false,
              "port": 3260
            }
          ],
          "tag": 1
        }
      ],
      "wwn": "$IQN"
    }
  ]
}
EOF
}

move_from_lio() {
    save_lio
    longshore import lio /run/moved/saveconfig.json --output /run/moved/longshore.toml
    cat /run/moved/longshore.toml
    take_lio_down
    serve
}

# --- tgt

set_up_tgt() {
    mkdir -p /run/tgt /run/moved /var/run/tgtd
    truncate -s 64M /run/tgt/disk
    tgtd --iscsi portal=127.0.0.1:3260
    eventually 5 tgtadm --op show --mode target
    tgtadm --op new --mode target --tid 1 -T $IQN
    tgtadm --op new --mode logicalunit --tid 1 --lun 1 -b /run/tgt/disk
    tgtadm --op bind --mode target --tid 1 -Q $INITIATOR
}

move_from_tgt() {
    # As the administrator wrote it.
    cat >/run/moved/targets.conf <<EOF
default-driver iscsi
<target $IQN>
    backing-store /run/tgt/disk
    initiator-name $INITIATOR
</target>
EOF
    longshore import tgt /run/moved/targets.conf --output /run/moved/longshore.toml
    cat /run/moved/longshore.toml
    tgtadm --op unbind --mode target --tid 1 -Q ALL || true
    kill -9 "$(pidof tgtd)"
    eventually 5 fails pidof tgtd
    serve
}

start_iscsid
check lio-serves set_up_lio
check lio-disk-in-use attach
check lio-is-replaced move_from_lio
check lio-writer-goes-on goes_on
check lio-disk-after-rescan same_disk_after_rescan
check lio-nothing-is-lost detach
check tgt-serves set_up_tgt
check tgt-disk-in-use attach
check tgt-is-replaced move_from_tgt
check tgt-writer-goes-on goes_on
check tgt-disk-after-rescan same_disk_after_rescan
check tgt-nothing-is-lost detach
