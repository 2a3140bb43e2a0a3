# One volume over iSCSI and NVMe/TCP at the same time: what one writes the other reads, ranges that
# do and do not overlap, reservations of either that keep the other out, compare and write.
# volume: disk0 128M
# nvme: 1
# processors: 2
# limit: 900

modprobe nvme_tcp
start_iscsid
new_node "$PORTAL0"

both() {
    log_in "$PORTAL0"
    nvme_connect "$NVME0" --nr-io-queues=2
    wait_for_disk
}

same_size() {
    [ "$(blockdev --getsize64 "$scsi")" = $((128 << 20)) ]
    [ "$(blockdev --getsize64 "$nvme")" = $((128 << 20)) ]
    [ "$(blockdev --getss "$scsi")" = "$(blockdev --getss "$nvme")" ]
}

# One writes, flushing; the other reads it all.
written_by() {
    ledger write --device "$1" --seed "$3" --blocks 1024 --seconds 2 >/tmp/acknowledged
    ledger check --device "$2" --seed "$3" --blocks 1024 \
        --acknowledged "$(wc -l </tmp/acknowledged)"
    dd if=/dev/zero of="$2" bs=1M count=4 oflag=direct 2>/dev/null
    dd if="$1" bs=1M count=4 iflag=direct 2>/dev/null | cmp -n 4194304 - /dev/zero
}

file_system() {
    mkfs.ext4 -q -F "$1"
    mount -t ext4 "$1" /mnt
    cp -r /job /usr/bin/ledger /mnt
    (cd /mnt && md5sum ledger job/*.sh) >/tmp/sums
    umount /mnt
    blockdev --flushbufs "$2"
    e2fsck -fn "$2"
    mount -t ext4 -o ro "$2" /mnt
    (cd /mnt && md5sum -c /tmp/sums)
    umount /mnt
}

# Verified writes of both at the same time, each in its own half.
disjoint() {
    for place in "$scsi 0" "$nvme 64M"; do
        fio --name=verify --filename="${place% *}" --offset="${place#* }" --size=8M \
            --rw=randwrite --bsrange=512-128k --blockalign=512 --direct=1 --ioengine=libaio \
            --iodepth=16 --verify=crc32c --verify_fatal=1 --do_verify=1 --minimal >/tmp/fio.log &
        pids="$pids $!"
    done
    for pid in $pids; do wait "$pid"; done
}

# Both write the same blocks: in the end each is wholly the last of one of them, over either.
overlapping() {
    dd if=/dev/zero of="$scsi" bs=1M count=1 oflag=direct 2>/dev/null
    ledger write --device "$scsi" --seed 7 --blocks 128 --seconds 5 >/tmp/by-scsi &
    writer=$!
    ledger write --device "$nvme" --seed 8 --blocks 128 --seconds 5 >/tmp/by-nvme
    wait $writer
    for disk in "$scsi" "$nvme"; do
        ledger shared --device "$disk" --blocks 128 --seed 7 \
            --acknowledged "$(wc -l </tmp/by-scsi)" --other-seed 8 \
            --other-acknowledged "$(wc -l </tmp/by-nvme)"
    done
}

# What one deallocates reads as zeros over the other.
deallocated() {
    dd if=/dev/urandom of="$scsi" bs=1M count=2 seek=80 oflag=direct 2>/dev/null
    blkdiscard -o $((80 << 20)) -l $((1 << 20)) "$scsi"
    blkdiscard -o $((81 << 20)) -l $((1 << 20)) "$nvme"
    for disk in "$scsi" "$nvme"; do
        dd if="$disk" bs=1M skip=80 count=2 iflag=direct 2>/dev/null |
            cmp -n $((2 << 20)) - /dev/zero
    done
}

nvme_write() {
    nvme write "$nvme" --start-block=$((${2:-0})) --block-count=0 --data-size=512 --data="$1"
}

nvme_read() {
    nvme read "$nvme" --start-block=0 --block-count=0 --data-size=512 --data=/tmp/back
}

scsi_write() {
    dd if=/tmp/one of="$scsi" bs=512 count=1 oflag=direct 2>/dev/null
}

scsi_read() {
    dd if="$scsi" of=/dev/null bs=512 count=1 iflag=direct 2>/dev/null
}

# sg_persist ends with 24 for a reservation conflict.
persist() {
    sg_persist --out "$@" "$scsi"
}

scsi_reservation_holds() {
    persist --register --param-sark=5
    persist --reserve --param-rk=5 --prout-type=1
    scsi_write
    nvme_read
    has_status 0x83 nvme_write /tmp/one
    fails dd if=/dev/zero of="$nvme" bs=4k count=1 oflag=direct
    persist --release --param-rk=5 --prout-type=1
    persist --reserve --param-rk=5 --prout-type=3
    has_status 0x83 nvme_read
    has_status 0x83 nvme resv-acquire "$nvme" --crkey=0xb --rtype=1 --racqa=0
    persist --release --param-rk=5 --prout-type=3
    nvme_write /tmp/one
    persist --register --param-rk=5 --param-sark=0
}

nvme_reservation_holds() {
    nvme resv-register "$nvme" --nrkey=0xb --rrega=0
    nvme resv-acquire "$nvme" --crkey=0xb --rtype=1 --racqa=0
    nvme_write /tmp/one
    scsi_read
    fails scsi_write
    sg_persist --in --read-reservation "$scsi" | tee /tmp/reservation
    grep -q "Key *= *0xb" /tmp/reservation
    persist --register --param-sark=5
    ends_with 24 persist --reserve --param-rk=5 --prout-type=1
    nvme resv-release "$nvme" --crkey=0xb --rtype=1 --rrela=0
    scsi_write
    nvme resv-acquire "$nvme" --crkey=0xb --rtype=2 --racqa=0
    fails scsi_read
    nvme resv-release "$nvme" --crkey=0xb --rtype=2 --rrela=0
    scsi_read
}

# Both are registered. Each takes the reservation away from the other.
preempted() {
    nvme resv-acquire "$nvme" --crkey=0xb --rtype=1 --racqa=0
    persist --preempt --param-rk=5 --param-sark=b --prout-type=1
    scsi_write
    has_status 0x83 nvme_write /tmp/one
    nvme resv-register "$nvme" --nrkey=0xb --rrega=0
    nvme resv-acquire "$nvme" --crkey=0xb --prkey=5 --rtype=1 --racqa=1
    nvme_write /tmp/one
    fails scsi_write
    nvme resv-release "$nvme" --crkey=0xb --rrela=1
    scsi_write
}

# A block is one; iSCSI makes it a two if it is a one, while NVMe makes it a three. Whoever comes
# first, it ends as a three: as a two only if NVMe's write came between comparing and writing.
compare_and_write() {
    swapped=0
    for _ in $(seq 1 25); do
        nvme_write /tmp/one 4096
        sg_compare_and_write --quiet --in=/tmp/one --inw=/tmp/two --lba=4096 "$scsi" &
        swap=$!
        nvme_write /tmp/three 4096
        status=0
        wait $swap || status=$?
        [ $status = 0 ] || [ $status = 14 ] # done, or miscompare
        [ $status != 0 ] || swapped=$((swapped + 1))
        nvme compare "$nvme" --start-block=4096 --block-count=0 --data-size=512 --data=/tmp/three
    done
    echo "compare and write came first $swapped times of 25"
}

# Two initiators of iSCSI and NVMe between them: NVMe's compare sees all or nothing of a swap.
compare_after_swap() {
    nvme_write /tmp/one 4096
    sg_compare_and_write --quiet --in=/tmp/one --inw=/tmp/two --lba=4096 "$scsi"
    nvme compare "$nvme" --start-block=4096 --block-count=0 --data-size=512 --data=/tmp/two
    ends_with 14 sg_compare_and_write --quiet --in=/tmp/one --inw=/tmp/three --lba=4096 "$scsi"
    nvme compare "$nvme" --start-block=4096 --block-count=0 --data-size=512 --data=/tmp/two
}

both_see_the_new_size() {
    host resize disk0 256M
    host reload-server
    eventually 10 has_size "$nvme" $((256 << 20))
    iscsiadm -m session --rescan
    eventually 10 has_size "$scsi" $((256 << 20))
    dd if=/tmp/two of="$nvme" bs=512 count=1 seek=$(((200 << 20) / 512)) oflag=direct 2>/dev/null
    dd if="$scsi" bs=512 count=1 skip=$(((200 << 20) / 512)) iflag=direct 2>/dev/null |
        cmp - /tmp/two
}

has_size() {
    [ "$(blockdev --getsize64 "$1")" = "$2" ]
}

head -c 512 /dev/zero | tr '\0' 1 >/tmp/one
head -c 512 /dev/zero | tr '\0' 2 >/tmp/two
head -c 512 /dev/zero | tr '\0' 3 >/tmp/three
check login-and-connect both
scsi=$(wait_for_disk)
nvme=$(namespace 1)
check same-volume same_size
check written-over-iscsi-read-over-nvme written_by "$scsi" "$nvme" 1
check written-over-nvme-read-over-iscsi written_by "$nvme" "$scsi" 2
check file-system-made-over-iscsi file_system "$scsi" "$nvme"
check file-system-made-over-nvme file_system "$nvme" "$scsi"
check disjoint-ranges disjoint
check overlapping-ranges overlapping
check deallocated-over-either deallocated
check reservation-of-iscsi-keeps-nvme-out scsi_reservation_holds
check reservation-of-nvme-keeps-iscsi-out nvme_reservation_holds
check reservations-preempted-both-ways preempted
check swap-is-seen-by-compare compare_after_swap
check compare-and-write-races-with-writes compare_and_write
check both-see-a-new-size both_see_the_new_size
check logout log_out "$PORTAL0"
check disconnect nvme_disconnect
