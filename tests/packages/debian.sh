# Runs in a new Debian: installs the package, starts the server as its unit does, and removes the package.
# $1: the version.
set -eu
fail() { echo "trial: $*" >&2; exit 1; }

dpkg --install /longshore.deb > /dev/null
longshore --version | grep -qF "$1" || fail "the program is not of version $1"
[ -z "$(dpkg --verify longshore)" ] || fail "installed files differ from the package"
[ -e /etc/systemd/system/multi-user.target.wants/longshore.service ] && fail "enabled without being asked"
for file in man/man1/longshore.1.gz man/man5/longshore.toml.5.gz bash-completion/completions/longshore \
    zsh/vendor-completions/_longshore fish/vendor_completions.d/longshore.fish; do
    dpkg --listfiles longshore | grep -qx "/usr/share/$file" || fail "no $file"
done
[ "$(stat -c %U:%G:%a /etc/longshore/longshore.toml)" = root:longshore:640 ] || fail "others read the configuration"

systemctl --quiet enable longshore.service
[ -L /etc/systemd/system/multi-user.target.wants/longshore.service ] || fail "cannot be enabled"
# Units that are wanted are not part of this root.
systemd-analyze verify --man=no longshore.service longshore.socket longshore-nvme.socket 2> /tmp/verify || true
! grep -i longshore /tmp/verify || fail "systemd finds fault with the units"
grep -qx 'ExecStart=/usr/bin/longshore serve --config /etc/longshore/longshore.toml' \
    /usr/lib/systemd/system/longshore.service || fail "the unit starts something else"

# As the unit has it: its user, no capability, its folders.
install -d -o longshore -g longshore -m 755 /run/longshore
install -d -o longshore -g longshore -m 700 /var/lib/longshore
setpriv --reuid=longshore --regid=longshore --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
    env RUNTIME_DIRECTORY=/run/longshore STATE_DIRECTORY=/var/lib/longshore \
    longshore serve --config /etc/longshore/longshore.toml > /tmp/ready 2> /tmp/log &
server=$!
tries=0
until longshore status > /tmp/status 2> /dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] && kill -0 $server || fail "does not start: $(cat /tmp/log)"
    sleep 0.1
done
grep -q '^ *volumes *0$' /tmp/status || fail "serves volumes: $(cat /tmp/status)"
# Listeners, in state 0A: loopback is 0100007F.
awk '$4 == "0A" && $2 !~ /^0100007F:/ { exit 1 }' /proc/net/tcp || fail "listens beyond loopback"
[ "$(awk '$4 == "0A"' /proc/net/tcp | wc -l)" = 3 ] || fail "other listeners than three: $(cat /proc/net/tcp)"
[ "$(awk '$4 == "0A"' /proc/net/tcp6 | wc -l)" = 0 ] || fail "listens over IPv6"
# It is of use: a volume, made while it runs, that a client reads.
longshore volume create disk0 backend=mem size=64M > /dev/null
longshore target create iqn.2026-11.com.example:disks > /dev/null
longshore target map iqn.2026-11.com.example:disks disk0 > /dev/null
longshore target allow iqn.2026-11.com.example:disks '*' > /dev/null
longshore info iscsi://127.0.0.1:3260/iqn.2026-11.com.example:disks/0 > /dev/null
kill -TERM $server
wait $server || fail "ended with status $?: $(cat /tmp/log)"

dpkg --remove longshore > /dev/null
[ -e /etc/systemd/system/multi-user.target.wants/longshore.service ] && fail "still enabled after the removal"
dpkg --purge longshore > /dev/null
[ -e /etc/longshore/longshore.toml ] && fail "the configuration is left after the purge"
[ -d /var/lib/longshore ] || fail "the purge has removed state"
echo "package: installed, served, removed"
