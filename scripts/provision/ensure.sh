# Sourced by what sets up a machine: each function brings one thing to what is wanted, or, with --check, only says that it is not.
# What was changed or differs is counted in `ensure_changes`. However the program ends, its last line says the result.
# The caller sets `ensure_program` (how it calls itself) and `ensure_check` (empty, or not to change anything).

ensure_program=${ensure_program:-ensure}
ensure_check=${ensure_check:-}
ensure_changes=0
ensure_said=''
ensure_lock=/run/myqueue-provision.lock
ensure_lock_seconds=1800
ensure_started_folder=/var/lib/myqueue-started

say() { printf '%s: %s\n' "$ensure_program" "$1" >&2; }

fail() {
    ensure_said=yes
    say "FAILED: $1"
    exit "${2:-1}"
}

ensure_finish() {
    if [ "$1" != 0 ] && [ -z "$ensure_said" ]; then say 'FAILED before its end: run it again, it goes on from there'; fi
}
trap 'ensure_finish $?' EXIT

# ensure_alone: nothing else sets up or restores this machine meanwhile. The lock lies on descriptor 8 and is gone with whoever holds it; a script
# that is called by one that holds it has it already.
ensure_alone() {
    if [ "/proc/$$/fd/8" -ef "$ensure_lock" ]; then return 0; fi
    exec 8>"$ensure_lock"
    if flock --nonblock 8; then return 0; fi
    say 'waiting for another run on this machine'
    flock --timeout "$ensure_lock_seconds" 8 || fail "another run is at work on this machine, still after $ensure_lock_seconds s: wait for its end (ps -ef)"
}

# unlocked COMMAND…: for what leaves processes behind, which must not hold the lock.
unlocked() { "$@" 8>&-; }

# Whether the caller shall act: counts and tells the difference, and is false in a check.
differs() {
    ensure_changes=$((ensure_changes + 1))
    if [ -n "$ensure_check" ]; then
        say "differs: $1"
        return 1
    fi
    say "$1"
}

# ensure_debian: root, on Debian 12 or later.
ensure_debian() {
    local id='' version=''
    if [ -r /etc/os-release ]; then
        id=$(sed -n 's/^ID=//p' /etc/os-release | tr -d '"')
        version=$(sed -n 's/^VERSION_ID=//p' /etc/os-release | tr -d '"')
    fi
    [ "$id" = debian ] && [ "${version%%.*}" -ge 12 ] 2>/dev/null || fail "this is ${id:-unknown} ${version:-}: Debian 12 or later is wanted"
    [ "$(id -u)" = 0 ] || fail "this needs root: run it with sudo"
}

# ensure_packages NAME…: Debian's packages are installed. The lists are fetched only where something is missing.
ensure_packages() {
    local name missing=''
    for name in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing="$missing $name"
    done
    [ -n "$missing" ] || return 0
    differs "packages:$missing" || return 0
    # An installation that was interrupted. Somebody else's (a fresh machine upgrades itself) is waited for below.
    unlocked dpkg --configure -a >/dev/null 2>&1 || true
    ensure_apt update || fail 'the package lists could not be fetched'
    # shellcheck disable=SC2086 # a list of words
    ensure_apt install --no-install-recommends $missing >/dev/null || fail "these packages could not be installed:$missing"
}

ensure_apt() { DEBIAN_FRONTEND=noninteractive unlocked apt-get -qq -y -o DPkg::Lock::Timeout=300 "$@" </dev/null; }

# ensure_folder PATH MODE OWNER
ensure_folder() {
    [ "$(stat -c '%a %U:%G' "$1" 2>/dev/null)" != "${2#0} $3" ] || return 0
    differs "folder $1" || return 0
    mkdir -p "$1"
    chown "$3" "$1"
    chmod "$2" "$1"
}

# ensure_file PATH MODE OWNER: holds what comes on standard input, whole or not at all.
ensure_file() {
    local wanted
    wanted=$(cat && printf x) # the x keeps the last line's end
    if [ -f "$1" ] && [ "$(stat -c '%a %U:%G' "$1")" = "${2#0} $3" ] && [ "$(cat "$1" && printf x)" = "$wanted" ]; then return 0; fi
    differs "file $1" || return 0
    (umask 077 && printf '%s' "${wanted%x}" >"$1.new")
    chown "$3" "$1.new"
    chmod "$2" "$1.new"
    sync "$1.new"
    mv -f "$1.new" "$1"
}

# ensure_link PATH TARGET
ensure_link() {
    [ "$(readlink "$1" 2>/dev/null)" != "$2" ] || return 0
    differs "link $1 to $2" || return 0
    ln -sfn "$2" "$1.new"
    mv -fT "$1.new" "$1"
}

# ensure_password PATH: a file with a random password, which only root reads; one that is there stays.
ensure_password() {
    [ ! -s "$1" ] || return 0
    differs "password $1" || return 0
    (umask 077 && random_text >"$1.new")
    sync "$1.new"
    mv -f "$1.new" "$1"
}

random_text() { od -An -tx1 -N32 /dev/urandom | tr -d ' \n'; }

# What a service was last started with is remembered after its start, and not before: where a run is cut short between a change and the
# start, the next one starts it anew.

# ensure_content FILE…: what is in them now (of a link: where it leads), in few characters. One that is not there is no error.
ensure_content() {
    local file
    for file in "$@"; do
        printf '%s\n' "$file"
        if [ -L "$file" ]; then readlink "$file"; else cat "$file" 2>/dev/null || true; fi
    done | sha256sum | cut -c 1-64
}

# ensure_is_started NAME CONTENT
ensure_is_started() { [ "$(cat "$ensure_started_folder/$1" 2>/dev/null)" = "$2" ]; }

# ensure_started NAME CONTENT
ensure_started() {
    mkdir -p "$ensure_started_folder"
    (umask 077 && printf '%s\n' "$2" >"$ensure_started_folder/$1.new")
    mv -f "$ensure_started_folder/$1.new" "$ensure_started_folder/$1"
}

ensure_is_systemd() { [ -d /run/systemd/system ]; }

# ensure_end: what the program ends with: 0, or 1 where a check found differences.
ensure_end() {
    if [ -z "$ensure_check" ]; then
        say "done: $ensure_changes changes"
    elif [ "$ensure_changes" -gt 0 ]; then
        fail "$ensure_changes differences"
    else
        say 'everything is as it should be'
    fi
}
