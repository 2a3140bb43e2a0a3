# Runs a container of the image. $1: the layout, $2: the bundle, the rest: the health check, after $2.
set -eu
fail() { echo "trial: $*" >&2; cat "$log" >&2; exit 1; }
bundle=$2
shift 2
log=$bundle/log
name=longshore-trial-$$
runtime() { crun --root /run/crun --cgroup-manager=disabled "$@"; }
inside() { runtime exec --user 65534:65534 "$name" "$@"; }

# A view of control groups that crun accepts on any machine. It limits nothing here.
mount -t tmpfs tmpfs /run
umount -l /sys/fs/cgroup 2> /dev/null || true
mount -t cgroup2 none /sys/fs/cgroup
runtime run --bundle "$bundle" "$name" > "$log" 2>&1 &
container=$!
tries=0
until inside "$@" > /dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] && kill -0 $container || fail "the health check does not pass"
    sleep 0.1
done
pid=$(runtime state "$name" | sed -n 's/.*"pid" *: *\([0-9]*\).*/\1/p')
[ "$(awk '$1 == "Uid:" { print $2 }' "/proc/$pid/status")" = 65534 ] || fail "runs as another user"
[ "$(awk '$1 == "CapEff:" { print $2 }' "/proc/$pid/status")" = 0000000000000000 ] || fail "has capabilities"
root=$(awk '$5 == "/" { options = $6 } END { print options }' "/proc/$pid/mountinfo")
case ",$root," in
    *,ro,*) ;;
    *) fail "the root can be written: $root" ;;
esac
longshore() { inside /usr/bin/longshore "$@"; }
export_through() {
    longshore volume create disk0 backend=file path=/var/lib/longshore/disk0.img size=16M --server "$1" \
        && longshore target create iqn.2026-11.com.example:disks --server "$1" \
        && longshore target map iqn.2026-11.com.example:disks disk0 --server "$1" \
        && longshore target allow iqn.2026-11.com.example:disks '*' --server "$1"
}
export_through /run/longshore/longshore.sock > /dev/null || fail "cannot keep a volume"
longshore info iscsi://127.0.0.1:3260/iqn.2026-11.com.example:disks/0 > /dev/null || fail "the volume is not served"
runtime kill "$name" TERM
wait $container || fail "ended with status $?"
echo "image: healthy as user 65534 with a read-only root"
