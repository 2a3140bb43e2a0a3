# Runs the server in the guest, on its disk /dev/vda, with the guest's kernel as initiator, and
# writes until the power fails (PHASE=write), or checks after it has (PHASE=check).

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
    esac
}

serve() {
    [ "$BACKEND" != pool ] || [ "$PHASE" != check ] || longshore pool check /dev/vda --data
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
