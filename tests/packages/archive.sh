# Runs beside a root that holds the archive alone. $1: the root, $2: the program in it, $3: the version.
set -eu
fail() { echo "trial: $*" >&2; exit 1; }
inside() { chroot --userspec=65534:65534 "$root" "$program" "$@"; }
root=$1 program=$2

inside --version | grep -qF "$3" || fail "the program is not of version $3"
install -d -o 65534 -g 65534 "$root/run/longshore"
# Not by the function, so that the signal below reaches the server.
chroot --userspec=65534:65534 "$root" "$program" serve --volume disk0,backend=mem,size=64M \
    --socket /run/longshore/longshore.sock --state-dir /run/longshore/state > /dev/null 2> "$root/run/log" &
server=$!
tries=0
until inside status --server /run/longshore/longshore.sock > /dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] && kill -0 $server || fail "does not start: $(cat "$root/run/log")"
    sleep 0.1
done
inside info iscsi://127.0.0.1:3260/iqn.2026-11.local.longshore:default/0 > /dev/null
inside info nvme+tcp://127.0.0.1:4420/nqn.2026-11.local.longshore:default/1 > /dev/null
# By a name, which static programs look up by themselves.
mkdir -p "$root/etc"
printf '127.0.0.1 storage.example\n' > "$root/etc/hosts"
inside discover storage.example:3260 > /dev/null
kill -TERM $server
wait $server || fail "ended with status $?: $(cat "$root/run/log")"
echo "archive: served both protocols in an empty root"
