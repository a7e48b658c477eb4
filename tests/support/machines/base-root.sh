#!/usr/bin/env bash
set -euo pipefail

usage() {
    cat <<'HELP'
usage: tests/support/machines/base-root.sh DIR

Makes DIR a minimal Debian root like a fresh machine's: Python with venv, nothing more. Where packages come from is copied from this
machine. A DIR that is whole already stays, one that was cut short is made anew. Needs root, debootstrap and unshare.
HELP
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
    '' | -*) usage >&2; exit 2 ;;
esac
root=$1
[ ! -e "$root.whole" ] || exit 0
rm -rf --one-file-system "$root"
mkdir -p "$root"

field() { cat /etc/apt/sources.list.d/*.sources 2>/dev/null | awk -v name="$1:" '$1 == name && !found { print $2; found = 1 }'; }
mirror=$(field URIs) suite=$(field Suites)
if [ -z "$mirror" ]; then read -r mirror suite < <(sed -n 's/\[[^]]*\] *//; s/^deb \([^ ]*\) \([^ ]*\).*/\1 \2/p' /etc/apt/sources.list); fi
# In a mount namespace of its own: what it mounts below DIR is gone with it, however it ends, and does not stand in the way of the next one.
unshare --mount debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "${suite%% *}" "$root" "${mirror%% *}" >"$root.log" 2>&1 || {
    tail -n 5 "$root.log" >&2
    exit 1
}
rm -f "$root/etc/apt/sources.list"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list /etc/apt/apt.conf.d/99* /etc/resolv.conf /etc/hosts /etc/pip.conf; do
    if [ -f "$file" ]; then cat "$file" >"$root$file"; fi
done
if [ -f /etc/ssl/certs/ca-certificates.crt ]; then cat /etc/ssl/certs/ca-certificates.crt >"$root/etc/ssl/certs/ca-certificates.crt"; fi
touch "$root.whole"
