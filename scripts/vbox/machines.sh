# Sourced by cluster.sh: the one door to VBoxManage. Every function may be called again after it was cut short anywhere: it looks at
# what is there and does what is missing. Only machines of our group and name are ever touched. Written for bash 3.2.
#
# Wants: here, home (our folder), network (the first three numbers), memory_mb, cpus, image, PYTHON.

prefix=myqueue
: "${home:?}" "${network:?}" "${memory_mb:?}" "${cpus:?}" "${here:?}" "${PYTHON:?}"
image=${image:-}
machines_folder=$home/machines
base=$prefix-base
base_disk=$home/base.vdi
prepared=prepared # the snapshot of the base that nodes are linked to
disk_mb=10240
wait_seconds=${MYQUEUE_VBOX_WAIT_SECONDS:-300} # for a machine to boot or to shut down; an installer gets six times as long

vbox() {
    # Without the lock's descriptor: VBoxManage starts a service and machines that stay.
    VBoxManage "$@" </dev/null >"$home/vbox.out" 2>"$home/vbox.err" 8>&- || {
        say "VBoxManage $1 ${2:-}: $(grep -v '^0%' "$home/vbox.err" | tr '\n' ' ' | cut -c 1-400)"
        return 1
    }
}

# For what is read.
vbox_says() { VBoxManage "$@" </dev/null 8>&-; }

# --- what there is ---

# An answer that does not come ends the command: taken for "there is none", it would lead to the wrong step. So nothing here may be called
# in a pipe or in $(…), and what is found lies in variables.

newline='
'
# Whether $1 is one of the lines of $2. No pipe into a reader that ends early: the writer's SIGPIPE would be taken for "no".
has_line() { case "$newline$2$newline" in *"$newline$1$newline"*) return 0 ;; *) return 1 ;; esac; }

first_line() { printf '%s' "${1%%"$newline"*}"; }

# look_around: `machines` are the names of all machines that are called like ours, the base included, one a line. Once a command, and
# again after a machine was made or deleted.
look_around() {
    local listed
    listed=$(vbox_says list vms) || fail 'VBoxManage does not say what machines there are'
    machines=$(printf '%s\n' "$listed" | sed -n "s/^\"\($prefix-[a-z]*-\{0,1\}[0-9]*\)\" {.*/\1/p")
    looked=yes
}

is_machine() {
    [ -n "${looked:-}" ] || look_around
    has_line "$1" "$machines"
}

# look_at MACHINE: `info` is what VBoxManage says of it, `state` whether it runs.
look_at() {
    info=$(vbox_says showvminfo "$1" --machinereadable) || fail "VBoxManage does not say how $1 is"
    find_property VMState
    state=$property
}

# find_property KEY: `property` is a value of `info` without its quotes, or empty.
find_property() {
    property=''
    case $newline$info in
        *"$newline$1="*)
            property=${info#*"$1="}
            case $info in "$1="*) ;; *) property=${info#*"$newline$1="} ;; esac
            property=${property%%"$newline"*}
            property=${property#\"}
            property=${property%\"}
            ;;
    esac
}

has_property() { # KEY VALUE
    find_property "$1"
    [ "$property" = "$2" ]
}

is_state() { # MACHINE STATE
    look_at "$1"
    [ "$state" = "$2" ]
}

is_ours() {
    look_at "$1"
    find_property groups
    case ,$property, in
        *,/$prefix,*) ;;
        *) return 1 ;;
    esac
}

check_ours() { is_ours "$1" || fail "the machine $1 is not in the group /$prefix: it was not made here and is left alone; rename it"; }

has_snapshot() { # MACHINE NAME
    local found
    if ! found=$(vbox_says snapshot "$1" list --machinereadable 2>&1); then
        # To VBoxManage a machine without any is an error.
        case $found in *'does not have any snapshots'*) return 1 ;; *) fail "VBoxManage does not say what snapshots $1 has: $found" ;; esac
    fi
    has_line "$2" "$(printf '%s\n' "$found" | sed -n 's/^SnapshotName[-0-9]*="\(.*\)"$/\1/p')"
}

# Whether VirtualBox has a disk in its registry.
is_registered() {
    local listed
    listed=$(vbox_says list hdds) || fail 'VBoxManage does not say what disks there are'
    case $listed in *"$1"*) return 0 ;; *) return 1 ;; esac
}

wait_for_state() { keep_trying "$wait_seconds" "$1 to be $2" is_state "$1" "$2" || fail "$1 is not $2 after $wait_seconds s: look at its console in VirtualBox"; }

# --- the network ---

# find_network: `network_name` is the host-only interface (Linux) or network (macOS) of our addresses, or empty.
find_network() {
    local listed
    if is_macos; then
        listed=$(vbox_says list hostonlynets) || fail 'VBoxManage does not say what networks there are'
        network_name=$(printf '%s\n' "$listed" | sed -n "s/^Name: *\($prefix\)\$/\1/p")
    else
        listed=$(vbox_says list hostonlyifs) || fail 'VBoxManage does not say what interfaces there are'
        network_name=$(printf '%s\n' "$listed" | awk -v address="$network.1" '/^Name:/ { name = $2 } /^IPAddress:/ && $2 == address { print name }')
        interfaces=$(printf '%s\n' "$listed" | sed -n 's/^Name: *//p')
    fi
}

# VirtualBox chooses the name of an interface. What was there before is written down first, so that one that was made just before
# everything stopped is recognised: `made`.
find_made_interface() {
    find_network
    made=$(first_line "$(printf '%s\n' "$interfaces" | grep -vxF -f "$home/interfaces.before")")
}

ensure_network() {
    find_network
    [ -z "$network_name" ] || return 0
    say "making the host-only network $network.0/24"
    if is_macos; then
        vbox hostonlynet add --name="$prefix" --netmask=255.255.255.0 --lower-ip="$network.1" --upper-ip="$network.254" --enable || return 1
    else
        if [ ! -f "$home/interfaces.before" ]; then
            printf '%s\n' "$interfaces" >"$home/interfaces.before.new"
            mv -f "$home/interfaces.before.new" "$home/interfaces.before"
        fi
        find_made_interface
        if [ -z "$made" ]; then
            vbox hostonlyif create || return 1
            find_made_interface
            [ -n "$made" ] || fail 'VBoxManage made no host-only interface'
        fi
        vbox hostonlyif ipconfig "$made" --ip="$network.1" --netmask=255.255.255.0 || return 1
        rm -f "$home/interfaces.before"
    fi
    find_network
}

remove_network() {
    find_network
    # One that was made and got no address yet is ours too.
    if [ -z "$network_name" ] && [ -f "$home/interfaces.before" ]; then
        find_made_interface
        network_name=$made
    fi
    [ -n "$network_name" ] || return 0
    if is_macos; then vbox hostonlynet remove --name="$network_name"; else vbox hostonlyif remove "$network_name"; fi
}

# --- making machines ---

# mac_of HOST-NUMBER CARD: fixed hardware addresses, by which the seed image tells the cards apart.
mac_of() { printf '080027%02X%02X%02X' "${network##*.}" "$2" "$1"; }

seed_of() { printf '%s/seeds/%s.iso' "$home" "$1"; }

make_seed() {
    [ ! -f "$(seed_of "$1")" ] || return 0
    mkdir -p "$home/seeds"
    "$PYTHON" "$here/seed.py" "$(seed_of "$1")" --name "$1" --address "$network.$2/24" --nat-mac "$(mac_of "$2" 1)" --cluster-mac "$(mac_of "$2" 2)" \
        --key "$home/key.pub"
}

# configure_machine NAME HOST-NUMBER FORWARD: cards, memory and the seed of a machine that does not run and was just looked at. FORWARD is
# a port of this computer, or nothing.
configure_machine() {
    local cards
    if is_macos; then cards="--nic2 hostonlynet --host-only-net2 $network_name"; else cards="--nic2 hostonly --hostonlyadapter2 $network_name"; fi
    # shellcheck disable=SC2086 # a list of words
    vbox modifyvm "$1" --cpus "$cpus" --memory "$memory_mb" --nic1 nat $cards --macaddress1 "$(mac_of "$2" 1)" --macaddress2 "$(mac_of "$2" 2)" || return 1
    case $info in
        *'="balancer,tcp,'*) ;;
        *) [ -z "$3" ] || vbox modifyvm "$1" --natpf1 "balancer,tcp,127.0.0.1,$3,,9092" || return 1 ;;
    esac
    make_seed "$1" "$2" || return 1
    has_property '"SATA-1-0"' "$(seed_of "$1")" ||
        vbox storageattach "$1" --storagectl SATA --port 1 --device 0 --type dvddrive --medium "$(seed_of "$1")"
}

# What a cut-short creation left in our own folder stands in the way of the next one.
remove_remains() { rm -rf "${machines_folder:?}/$prefix/$1" "${machines_folder:?}/$1"; }

start_machine() {
    look_at "$1"
    case $state in
        running) ;;
        paused) vbox controlvm "$1" resume ;;
        *) vbox startvm "$1" --type headless ;;
    esac
}

# A disk of our own out of the image that the user named, whole or not at all.
make_base_disk() {
    [ ! -f "$base_disk" ] || return 0
    local making=$home/making.vdi
    ! is_registered "$making" || vbox closemedium disk "$making" || return 1
    rm -f "$making"
    say "making a disk of $image"
    case $image in
        *.raw | *.img) vbox convertfromraw "$image" "$making" --format=VDI || return 1 ;;
        *.iso) vbox createmedium disk --filename="$making" --size="$disk_mb" --format=VDI || return 1 ;;
        *) vbox clonemedium disk "$image" "$making" --format=VDI || return 1 ;;
    esac
    case $image in *.iso) ;; *) vbox modifymedium disk "$making" --resize="$disk_mb" || return 1 ;; esac
    ! is_registered "$making" || vbox closemedium disk "$making" || return 1
    mv "$making" "$base_disk"
}

make_base_machine() {
    make_base_disk || return 1
    if ! is_machine "$base"; then
        remove_remains "$base"
        vbox createvm --name="$base" --groups="/$prefix" --ostype=Debian_64 --basefolder="$machines_folder" --register || return 1
        look_around
    fi
    check_ours "$base"
    [ "$state" != running ] || return 0
    has_property storagecontrollername0 SATA || vbox storagectl "$base" --name=SATA --add=sata --controller=IntelAhci --portcount=4 || return 1
    has_property '"SATA-0-0"' "$base_disk" ||
        vbox storageattach "$base" --storagectl SATA --port 0 --device 0 --type hdd --medium "$base_disk" || return 1
    configure_machine "$base" 9 '' || return 1
    case $image in
        *.iso)
            if [ ! -f "$home/installing" ]; then
                install_base || return 1
                touch "$home/installing"
            fi
            ;;
    esac
    start_machine "$base"
}

# Debian's installer, unattended; afterwards the machine is like one of a cloud image. The installer's own login is never used.
install_base() {
    local packages='apt-get install -y cloud-init sudo openssh-server python3'
    [ -s "$home/installer-password" ] || (umask 077 && od -An -tx1 -N16 /dev/urandom | tr -d ' \n' >"$home/installer-password")
    vbox unattended install "$base" --iso="$image" --user=installer --user-password-file="$home/installer-password" --full-user-name=installer \
        --hostname="$base.local" --locale=en_US --time-zone=UTC --package-selection-adjustment=minimal \
        --post-install-command="/bin/sh -c 'if [ -d /target/etc ]; then chroot /target $packages; else $packages; fi'"
}

# A node: a linked clone of the prepared base, so that it takes seconds and little disk.
make_node_machine() { # NAME HOST-NUMBER FORWARD
    if ! is_machine "$1"; then
        remove_remains "$1"
        vbox clonevm "$base" --snapshot="$prepared" --options=Link --name="$1" --groups="/$prefix" --basefolder="$machines_folder" --register || return 1
        look_around
    fi
    check_ours "$1"
    case $state in
        running | paused | saved) ;;
        *) configure_machine "$1" "$2" "$3" || return 1 ;;
    esac
}

power_off() {
    look_at "$1"
    case $state in
        running | paused) vbox controlvm "$1" poweroff || return 1 ;;
        saved) vbox discardstate "$1" || return 1 ;;
    esac
}

delete_machine() {
    if is_machine "$1"; then
        check_ours "$1"
        power_off "$1" || return 1
        vbox unregistervm "$1" --delete || return 1
        look_around
    fi
    rm -f "$(seed_of "$1")"
    remove_remains "$1"
}
