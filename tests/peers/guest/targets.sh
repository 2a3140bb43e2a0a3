# A guest that is a target: LIO and nvmet of Linux, which the host reaches through forwarded ports.
# Comes up once for a whole run, then does what the tests ask of it until the host says "end".
#
# PORT_… of the settings are the ports in the guest; they are the same on the host.

SIZE_MIB=64
SECRET=longshore-secret
MUTUAL_SECRET=longshore-mutual
IQN=iqn.2026-11.local.longshore.peer
NQN=nqn.2026-11.local.longshore.peer
CONFIG=/sys/kernel/config
LIO=$CONFIG/target
NVMET=$CONFIG/nvmet

set -e
# Everything that goes wrong from here on is the verdict.
trap 'status=$?; [ $status = 0 ] || verdict failed "setting up ended with status $status"' EXIT

modprobe configfs
mount -t configfs config $CONFIG
mkdir -p /etc/target/pr /var/target/pr # where LIO looks when it is loaded
modprobe null_blk nr_devices=0
for module in target_core_mod target_core_file target_core_iblock iscsi_target_mod nvmet nvmet_tcp
do
    modprobe $module
done

# memory_disk NAME BLOCK_SIZE: a null_blk device that keeps what is written; prints its path.
memory_disk() {
    disk=$CONFIG/nullb/$1
    mkdir "$disk"
    echo $SIZE_MIB >"$disk/size"
    echo "$2" >"$disk/blocksize"
    echo 1 >"$disk/memory_backed"
    echo 1 >"$disk/discard"
    echo 1 >"$disk/power"
    [ -b "/dev/$1" ]
    echo "/dev/$1"
}

# --- LIO

# lio_disk BACKSTORE NAME CONTROL SERIAL: a backstore that takes UNMAP and zeros by WRITE SAME.
lio_disk() {
    store=$LIO/core/$1/$2
    mkdir -p "$store"
    echo "$3" >"$store/control"
    echo 1 >"$store/enable"
    echo "$4" >"$store/wwn/vpd_unit_serial"
    echo 1 >"$store/attrib/emulate_tpu"
    echo 1 >"$store/attrib/emulate_tpws"
}

# lio_target NAME AUTHENTICATION PORT…: a target whose LUN 0 is the file, 1 and 2 null_blk.
lio_target() {
    group=$LIO/iscsi/$IQN:$1/tpgt_1
    authentication=$2
    shift 2
    mkdir -p "$group"
    # With 0.0.0.0, SendTargets names the portal that was asked once for each.
    for port in "$@"; do mkdir "$group/np/10.0.2.15:$port"; done
    lun=0
    for store in fileio_0/file iblock_0/block iblock_0/wide; do
        mkdir "$group/lun/lun_$lun"
        ln -s "$LIO/core/$store" "$group/lun/lun_$lun/${store#*/}"
        lun=$((lun + 1))
    done
    echo 1 >"$group/attrib/generate_node_acls"
    echo 1 >"$group/attrib/cache_dynamic_acls"
    echo 0 >"$group/attrib/demo_mode_write_protect"
    echo "$authentication" >"$group/attrib/authentication"
    # "Yes", the default, would leave initiators no choice.
    echo No >"$group/param/InitialR2T"
    echo Yes >"$group/param/ImmediateData"
    echo 'CRC32C,None' >"$group/param/HeaderDigest"
    echo 'CRC32C,None' >"$group/param/DataDigest"
}

set_up_lio() {
    mkdir -p /run/lio
    mkdir -p $LIO/iscsi
    lio_disk fileio_0 file "fd_dev_name=/run/lio/file,fd_dev_size=$((SIZE_MIB << 20))" 1a2b3c4d01
    lio_disk iblock_0 block "udev_path=$(memory_disk nullb0 512)" 2b3c4d5e02
    lio_disk iblock_0 wide "udev_path=$(memory_disk nullb1 4096)" 3c4d5e6f03

    lio_target open 0 "$PORT_LIO0" "$PORT_LIO1"
    # A newline would become part of the name.
    lio_target chap 1 "$PORT_LIO_CHAP"
    printf %s alice >"$group/auth/userid"
    printf %s $SECRET >"$group/auth/password"
    lio_target mutual 1 "$PORT_LIO_MUTUAL"
    printf %s alice >"$group/auth/userid"
    printf %s $SECRET >"$group/auth/password"
    printf %s server >"$group/auth/userid_mutual"
    printf %s $MUTUAL_SECRET >"$group/auth/password_mutual"
    for name in open chap mutual; do echo 1 >"$LIO/iscsi/$IQN:$name/tpgt_1/enable"; done
}

# --- nvmet

# nvmet_namespace SUBSYSTEM NSID PATH GROUP
nvmet_namespace() {
    space=$NVMET/subsystems/$NQN:$1/namespaces/$2
    mkdir "$space"
    echo "$3" >"$space/device_path"
    [ -b "$3" ] || echo 1 >"$space/buffered_io" # tmpfs has no direct I/O
    echo "$4" >"$space/ana_grpid"
    echo 1 >"$space/enable"
}

# nvmet_port NUMBER PORT IN_CAPSULE SUBSYSTEM…
nvmet_port() {
    port=$NVMET/ports/$1
    mkdir "$port"
    echo tcp >"$port/addr_trtype"
    echo ipv4 >"$port/addr_adrfam"
    echo 0.0.0.0 >"$port/addr_traddr"
    echo "$2" >"$port/addr_trsvcid"
    echo "$3" >"$port/param_inline_data_size"
    mkdir "$port/ana_groups/2"
    echo optimized >"$port/ana_groups/2/ana_state"
    shift 3
    for subsystem in "$@"; do
        ln -s "$NVMET/subsystems/$NQN:$subsystem" "$port/subsystems/$NQN:$subsystem"
    done
}

set_up_nvmet() {
    mkdir -p /run/nvmet
    truncate -s ${SIZE_MIB}M /run/nvmet/file
    for subsystem in disks closed; do mkdir "$NVMET/subsystems/$NQN:$subsystem"; done
    echo 1 >"$NVMET/subsystems/$NQN:disks/attr_allow_any_host"
    echo LONGSHOREPEER1 >"$NVMET/subsystems/$NQN:disks/attr_serial"
    nvmet_port 1 "$PORT_NVMET0" 16384 disks closed
    # Connect itself needs 1 KiB.
    nvmet_port 2 "$PORT_NVMET1" 4096 disks
    # Group 1 is there by itself. The last namespace is in a group whose states tests change.
    nvmet_namespace disks 1 "$(memory_disk nullb2 512)" 1
    nvmet_namespace disks 2 /run/nvmet/file 1
    nvmet_namespace disks 3 "$(memory_disk nullb3 512)" 2
    nvmet_namespace closed 1 "$(memory_disk nullb4 512)" 1
}

set_up_lio
set_up_nvmet
set +e
trap - EXIT
say "targets are up"

# What tests ask for, one at a time:
#   ana PORT STATE         the state of group 2 at port 1 or 2
#   sessions               how many iSCSI sessions the open target has
perform() {
    case $1 in
    ana) echo "$3" >"$NVMET/ports/$2/ana_groups/2/ana_state" ;;
    sessions) tr '\0' '\n' <"$LIO/iscsi/$IQN:open/tpgt_1/dynamic_sessions" | grep -c . || true ;;
    log) dmesg | tail -n 30 | tr '\n' '|' ;;
    *) echo "no command $1" && false ;;
    esac
}

while request=$(host next) && [ "$request" != end ]; do
    # shellcheck disable=SC2086 # requests are words
    if answer=$(perform $request 2>&1); then status=ok; else status=failed; fi
    host "result $status $answer" >/dev/null
done
