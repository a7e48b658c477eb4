# Sourced by what sets up a machine: each function brings one thing to what is wanted, or, with --check, only says that it is not.
# What was changed or differs is counted in `ensure_changes`; a name given by `ensure_note NAME` is remembered for `ensure_noted`.
# The caller sets `ensure_program` (how it calls itself) and `ensure_check` (empty, or not to change anything).

ensure_program=${ensure_program:-ensure}
ensure_check=${ensure_check:-}
ensure_changes=0
ensure_names=' '

say() { printf '%s: %s\n' "$ensure_program" "$1" >&2; }

fail() {
    say "$1"
    exit "${2:-1}"
}

# Whether the caller shall act: counts and tells the difference, and is false in a check.
differs() {
    ensure_changes=$((ensure_changes + 1))
    if [ -n "$ensure_check" ]; then
        say "differs: $1"
        return 1
    fi
    say "$1"
}

ensure_note() { ensure_names="$ensure_names$1 "; }
ensure_noted() { case $ensure_names in *" $1 "*) return 0 ;; *) return 1 ;; esac; }

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
    dpkg --configure -a >/dev/null # an installation that was interrupted
    DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null || fail "the package lists could not be fetched"
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing </dev/null >/dev/null || fail "these packages could not be installed:$missing"
}

# ensure_folder PATH MODE OWNER
ensure_folder() {
    [ "$(stat -c '%a %U:%G' "$1" 2>/dev/null)" != "${2#0} $3" ] || return 0
    differs "folder $1" || return 0
    mkdir -p "$1"
    chown "$3" "$1"
    chmod "$2" "$1"
}

# ensure_file PATH MODE OWNER [NAME]: holds what comes on standard input, whole or not at all. NAME is noted where it did not.
ensure_file() {
    local wanted
    wanted=$(cat && printf x) # the x keeps the last line's end
    if [ -f "$1" ] && [ "$(stat -c '%a %U:%G' "$1")" = "${2#0} $3" ] && [ "$(cat "$1" && printf x)" = "$wanted" ]; then return 0; fi
    [ -z "${4:-}" ] || ensure_note "$4"
    differs "file $1" || return 0
    (umask 077 && printf '%s' "${wanted%x}" >"$1.new")
    chown "$3" "$1.new"
    chmod "$2" "$1.new"
    sync "$1.new"
    mv -f "$1.new" "$1"
}

# ensure_link PATH TARGET [NAME]
ensure_link() {
    [ "$(readlink "$1" 2>/dev/null)" != "$2" ] || return 0
    [ -z "${3:-}" ] || ensure_note "$3"
    differs "link $1 to $2" || return 0
    ln -sfn "$2" "$1.new"
    mv -fT "$1.new" "$1"
}

# ensure_password PATH: a file with a random password, which only root reads; one that is there stays. Says the password.
ensure_password() {
    if [ ! -s "$1" ]; then
        if ! differs "password $1"; then return 0; fi
        (umask 077 && random_text >"$1.new")
        sync "$1.new"
        mv -f "$1.new" "$1"
    fi
    cat "$1"
}

random_text() { od -An -tx1 -N32 /dev/urandom | tr -d ' \n'; }

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
