#!/bin/busybox sh
# First process of a guest: mounts, network, then the job. The verdict goes to the second serial
# line; without one the host counts the run as failed, so a crash here needs no care.
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mkdir -p /dev/pts /run/lock/iscsi
stty -F /dev/ttyS1 raw -echo
exec 3>/dev/ttyS1 4</dev/ttyS1
for module in virtio_pci virtio_net virtio_blk sd_mod; do modprobe $module; done
ip link set lo up
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2

. /job/settings
. /job/guest.sh
(
    sleep "$WATCHDOG"
    echo "watchdog: $WATCHDOG s are over"
    ps -o pid,stat,args
    dmesg | tail -n 40
    verdict failed "the job did not end within $WATCHDOG s"
    poweroff -f
) &
(. /job/job.sh)
dmesg | tail -n 40
verdict passed
poweroff -f
