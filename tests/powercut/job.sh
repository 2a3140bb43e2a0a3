# Runs the server in the guest, on its disk /dev/vda, with the guest's kernel as initiator, and
# writes until the power fails (PHASE=write), or checks after it has (PHASE=check). The check of a mirror has one disk of
# the two (DISKS=1), or both.

volume() {
    case $BACKEND in
    block) echo "disk0,backend=block,path=/dev/vda$OPTIONS" ;;
    file)
        [ "$PHASE" = check ] || mkfs.ext4 -q -F /dev/vda
        mount -t ext4 /dev/vda /mnt
        echo "disk0,backend=file,path=/mnt/disk0.img,size=32M$OPTIONS"
        ;;
    pool)
        [ "$PHASE" = check ] || longshore pool create tank /dev/vda --force >/dev/null
        echo "disk0,backend=pool,pool=/dev/vda,size=32M$OPTIONS"
        ;;
    mirror)
        [ "$PHASE" = check ] || longshore pool create tank /dev/vda /dev/vdb --mirror --force >/dev/null
        echo "disk0,backend=pool,pool=$(sides),size=32M$OPTIONS"
        ;;
    esac
}

sides() {
    case $DISKS in
    1) echo /dev/vda ;;
    2) echo /dev/vda+/dev/vdb ;;
    esac
}

# What is found on the drives of a pool before it is served again.
look() {
    case $BACKEND-$DISKS in
    pool-1) longshore pool check /dev/vda --data ;;
    mirror-2) longshore pool check "$(sides)" --data ;;
    mirror-1)
        # The pool does not know that the other side is lost.
        ! longshore pool scrub /dev/vda || return 1
        longshore pool offline /dev/vda+/dev/vdb /dev/vdb
        # That is its only finding.
        longshore pool scrub /dev/vda | grep "done, 1 finding "
        ;;
    esac
}

serve() {
    [ "$PHASE" != check ] || look || return 1
    longshore serve --volume "$(volume)" --iscsi 127.0.0.1:3260 >/tmp/ready 2>/tmp/server.log &
    eventually 20 grep -q ^ready /tmp/ready || {
        cat /tmp/server.log
        return 1
    }
    start_iscsid
    new_node 127.0.0.1:3260
    log_in 127.0.0.1:3260
}

check server-starts serve
disk=$(wait_for_disk)
if [ "$PHASE" = write ]; then
    ledger write --device "$disk" --seed "$SEED" --blocks "$BLOCKS" --seconds 60 \
        --durability "$DURABILITY" >&3
    cat /tmp/server.log
else
    check everything-acknowledged-is-there ledger check --device "$disk" --seed "$SEED" \
        --blocks "$BLOCKS" --acknowledged "$ACKNOWLEDGED" --ahead "$AHEAD"
fi
