# Sourced by cluster.sh: whether this computer can carry the machines. Speaks on standard error; written for bash 3.2.

command=${command:?}
say() { printf 'vbox: %s\n' "$1" >&2; }

fail() {
    said=yes
    say "$command: FAILED: $1"
    exit "${2:-1}"
}

# The last line says the result, however the command ends.
said=''
finish() {
    if [ "$command" = ssh ] || [ "$1" = 2 ]; then return 0; fi
    if [ "$1" = 0 ]; then say "$command: done"; elif [ -z "$said" ]; then say "$command: FAILED; it may be run again"; fi
    case $1 in 0 | 1) ;; *) exit 1 ;; esac
}

# keep_trying SECONDS WHAT COMMAND…: until the command succeeds, by the clock and told; false where it did not in that time.
keep_trying() {
    local what=$2 end=$((SECONDS + $1)) tell=$((SECONDS + 30))
    shift 2
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        if [ "$SECONDS" -ge "$tell" ]; then
            say "waiting for $what"
            tell=$((SECONDS + 30))
        fi
        sleep 1
    done
}

: "${home:?}" "${memory_mb:?}"
version_oldest=6.1.28 # the first that keeps host-only networks to 192.168.56.0/21, unless told otherwise
base_disk_mb=3072     # what the image that the machines share grows to
node_disk_mb=1024     # what a node adds to it at first

is_macos() { [ "$(uname -s)" = Darwin ]; }

# A version as a number that can be compared: 7.0.20 is 7000020.
version_number() { printf '%s' "$1" | awk -F. '{ printf "%d", $1 * 1000000 + $2 * 1000 + $3 }'; }

check_tools() {
    local tool version oldest=$version_oldest
    case $(uname -s)-$(uname -m) in
        Linux-x86_64 | Darwin-x86_64) ;;
        *) fail "this is $(uname -s) on $(uname -m): only Linux and macOS on x86-64 are known here" ;;
    esac
    command -v VBoxManage >/dev/null || fail 'there is no VBoxManage: install VirtualBox'
    for tool in ssh ssh-keygen tar; do
        command -v "$tool" >/dev/null || fail "there is no $tool"
    done
    version=$(VBoxManage --version 2>/dev/null </dev/null 8>&- | tail -n 1 | sed 's/^\([0-9]*\.[0-9]*\.[0-9]*\).*/\1/') || true
    case $version in
        [0-9]*.[0-9]*.[0-9]*) ;;
        *) fail "VBoxManage does not say its version (it says '$version'): its kernel modules may be missing" ;;
    esac
    ! is_macos || oldest=7.0.0 # where host-only adapters became host-only networks
    [ "$(version_number "$version")" -ge "$(version_number "$oldest")" ] || fail "this is VirtualBox $version: $oldest or later is wanted"
}

free_memory_mb() {
    if is_macos; then
        vm_stat | awk '/page size of/ { size = $8 }
            /^Pages (free|inactive|speculative|purgeable)/ { gsub(/\./, "", $NF); pages += $NF }
            END { printf "%d", pages * size / 1048576 }'
    else
        awk '/^MemAvailable:/ { printf "%d", $2 / 1024 }' "${MYQUEUE_VBOX_MEMINFO:-/proc/meminfo}"
    fi
}

free_disk_mb() { df -Pk "$home" | awk 'NR == 2 { printf "%d", $4 / 1024 }'; }

# check_room MACHINES-TO-START MACHINES-TO-MAKE BASES-TO-MAKE
check_room() {
    local memory disk memory_wanted=$(($1 * memory_mb)) disk_wanted=$(($2 * node_disk_mb + $3 * base_disk_mb))
    memory=$(free_memory_mb) disk=$(free_disk_mb)
    [ "$memory" -ge "$memory_wanted" ] ||
        fail "$1 machines want $memory_wanted MB of memory and $memory MB are free: close something, give --memory, or make fewer machines (--together)"
    [ "$disk" -ge "$disk_wanted" ] ||
        fail "the machines want $disk_wanted MB of disk in $home and $disk MB are free: make room, or set MYQUEUE_VBOX_HOME to another disk"
}
