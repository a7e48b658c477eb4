#!/usr/bin/env bash
set -euo pipefail

usage() {
    cat <<'HELP'
usage: scripts/vbox/cluster.sh COMMAND [ARGUMENTS]

A MyQueue cluster of virtual machines on this computer, by VirtualBox. Every command may be repeated: what was cut short goes on,
what is there stays. Only machines whose names begin with "myqueue-" in the group /myqueue are touched.

  up --image FILE [OPTIONS]   make what is missing, start, provision, upgrade to the code that lies here; a second up repairs
      --image FILE     a Debian 12 (or later) cloud image for x86-64, "generic": .qcow2, .raw, .vmdk or .vdi; or an installer's .iso, which
                       is installed without questions. It is copied, never changed; needed the first time only. Nothing is downloaded
                       but Debian's and Python's packages by the machines
      --brokers N      (default 3)      --managers N   1, 3 or 5 (default 3)
      --together       managers on the brokers' machines: three machines instead of six
      --memory MB      of each machine (default 1024)      --cpus N   (default 1)
      --port PORT      of this computer that leads to the first balancer (default 9092); the next ones lead to the others
      --network A.B.C  (default 192.168.61), from 192.168.56 to 192.168.63
  status               machines, their states and addresses, and what the cluster says of its nodes
  ssh NODE [COMMAND]   a shell, or a command, on broker-1, manager-1 …
  stop NODE            shut down in order      kill NODE   switch off at once      start NODE   switch on
  add-broker           one machine more, made a broker
  remove-broker NODE   drain it, wait until it holds nothing, take it out of the cluster, delete its machine; refused while data would
                       be lost. Cut short, it is run again
  snapshot NAME        stop all, keep the state of all machines under a name, start all
  restore NAME         go back to that state, all machines together
  snapshots            their names
  down                 stop all machines in order
  destroy --yes        delete the machines, their disks and their network; the image stays

The cluster's folder is MYQUEUE_VBOX_HOME (default ~/.myqueue/vbox). Its token, for clients: secrets/token in it.
exit codes: 0 done, 1 failed, 2 usage; of ssh those of the COMMAND
HELP
}

wrong() {
    printf 'vbox: %s\n' "$1" >&2
    printf 'usage: scripts/vbox/cluster.sh COMMAND (--help says more)\n' >&2
    exit 2
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
    up | status | ssh | stop | kill | start | add-broker | remove-broker | snapshot | restore | snapshots | down | destroy) ;;
    '') wrong 'a command is missing' ;;
    *) wrong "there is no command $1" ;;
esac
command=$1
shift

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
project=$(cd -- "$here/../.." && pwd -P)
home=${MYQUEUE_VBOX_HOME:-$HOME/.myqueue/vbox}
image='' brokers='1 2 3' managers=3 together='' memory_mb=1024 cpus=1 port=9092 network=192.168.61 planned=''

# --- the plan: what the cluster consists of, kept in a file of its folder ---

read_plan() {
    local name value
    [ -f "$home/plan" ] || return 0
    planned=yes
    while IFS='=' read -r name value; do
        case $name in
            image | brokers | managers | together | memory_mb | cpus | port | network) printf -v "$name" '%s' "$value" ;;
            *) wrong "$home/plan has a line that is not known: $name" ;;
        esac
    done <"$home/plan"
}

write_plan() {
    local name
    for name in image brokers managers together memory_mb cpus port network; do printf '%s=%s\n' "$name" "${!name}"; done >"$home/plan.new"
    mv -f "$home/plan.new" "$home/plan"
}

is_number() { case $1 in '' | *[!0-9]* | 0*) return 1 ;; esac; }

parse_up() {
    local count='' before=$managers-$together-$network
    while [ $# -gt 0 ]; do
        case $1 in
            --together) together=yes; shift; continue ;;
            --image | --brokers | --managers | --memory | --cpus | --port | --network) [ $# -gt 1 ] || wrong "$1 needs a value" ;;
            *) wrong "up has no option $1" ;;
        esac
        case $1 in
            --image) image=$2 ;;
            --network) network=$2 ;;
            *) is_number "$2" || wrong "$1 $2: a number from 1 is wanted" ;;
        esac
        case $1 in
            --brokers) count=$2 ;;
            --managers) managers=$2 ;;
            --memory) memory_mb=$2 ;;
            --cpus) cpus=$2 ;;
            --port) port=$2 ;;
        esac
        shift 2
    done
    case $managers in 1 | 3 | 5) ;; *) wrong "--managers $managers: 1, 3 or 5" ;; esac
    case $network in 192.168.5[6-9] | 192.168.6[0-3]) ;; *) wrong "--network $network: from 192.168.56 to 192.168.63, which VirtualBox allows" ;; esac
    [ -z "$planned" ] || [ "$before" = "$managers-$together-$network" ] || wrong 'this cluster was made with other managers or another network: that cannot be changed'
    if [ -n "$count" ]; then
        # shellcheck disable=SC2086 # a list of numbers
        if [ -z "$planned" ]; then brokers=$(seq 1 "$count" | tr '\n' ' ' | sed 's/ $//'); else
            set -- $brokers
            [ "$count" -ge $# ] || wrong "this cluster has $# brokers: remove-broker takes one out"
            while [ $# -lt "$count" ]; do brokers="$brokers $(next_broker)" && set -- $brokers; done
        fi
    fi
    # shellcheck disable=SC2086
    set -- $brokers
    [ $# -le 100 ] || wrong '--brokers: 100 at most'
    [ -z "$together" ] || [ $# -ge "$managers" ] || wrong "--together wants as many brokers as managers: $managers"
}

# A number that no broker has, above all of them: an address is not used again for another machine while the cluster knows it.
next_broker() { printf '%s' $((${brokers##* } + 1)); }

check_image() {
    if [ -f "$home/base.vdi" ] || is_machine "$base"; then return 0; fi
    [ -n "$image" ] || wrong 'up --image FILE is needed the first time: a Debian cloud image or installer'
    case $image in *.qcow2 | *.raw | *.img | *.vmdk | *.vdi | *.iso) ;; *) wrong "--image $image: .qcow2, .raw, .vmdk, .vdi or .iso is wanted" ;; esac
    [ -r "$image" ] || wrong "--image $image cannot be read"
    image=$(cd -- "$(dirname -- "$image")" && pwd -P)/$(basename -- "$image")
}

# One command at a time. The lock lies on descriptor 8, so it is gone with whoever held it, however that ended. By Python, since macOS has no flock.
take_lock() {
    umask 077
    mkdir -p "$home"
    home=$(cd -- "$home" && pwd -P)
    exec 8>"$home/lock"
    "$PYTHON" -c 'import fcntl; fcntl.flock(8, fcntl.LOCK_EX | fcntl.LOCK_NB)' 2>/dev/null || fail "another command is at work in $home: wait for its end"
}

# --- commands ---

make_keys() {
    if [ ! -f "$key" ]; then
        rm -f "$key.new" "$key.new.pub"
        ssh-keygen -q -t ed25519 -N '' -C myqueue -f "$key.new"
        mv -f "$key.new.pub" "$key.pub"
        mv -f "$key.new" "$key"
    fi
    "$project/scripts/provision/new-secrets" "$home/secrets"
}

prepare_base() {
    if is_machine "$base" && has_snapshot "$base" "$prepared"; then return 0; fi
    make_base_machine || exit 1
    case $image in
        *.iso) say "Debian is being installed in $base: that takes a while"; wait_for_ssh "$base" $((6 * wait_seconds)) ;;
        *) wait_for_ssh "$base" "$wait_seconds" ;;
    esac
    say "installing packages in $base"
    on "$base" "sudo timeout $wait_seconds cloud-init status --wait" </dev/null >/dev/null || true # it says 2 where it has only a warning
    send_code "$base" || exit 1
    on "$base" 'sudo /srv/myqueue/scripts/provision/node.sh --prepare && sudo truncate -s 0 /etc/machine-id && sync' </dev/null || fail "$base could not be prepared"
    shut_down "$base"
    vbox snapshot "$base" take "$prepared" || exit 1
}

count_room() {
    local node starting=0 making=0 bases=0
    if ! is_machine "$base"; then bases=1; fi
    for node in $(nodes); do
        if ! is_machine "$node"; then making=$((making + 1)) starting=$((starting + 1)); elif ! is_state "$node" running; then starting=$((starting + 1)); fi
    done
    check_room "$starting" "$making" "$bases"
}

up() {
    local node upgrading=''
    check_image
    count_room
    write_plan
    make_keys
    ensure_network || exit 1
    prepare_base
    for node in $(nodes); do make_node_machine "$node" "$(host_number "$node")" "$(forward_of "$node")" || exit 1; done
    start_all
    # A cluster that works goes on working: the next machine's turn comes when all are well again.
    if is_healthy; then upgrading=yes; fi
    for node in $(nodes); do
        provision "$node" || fail "$node could not be provisioned"
        [ -z "$upgrading" ] || wait_for_health
    done
    wait_for_health
    rm -f "$home/adding"
    say "the cluster is at http://127.0.0.1:$port, its token in $home/secrets/token"
}

start_all() {
    local node
    for node in $(nodes); do start_machine "$node" || exit 1; done
    for node in $(nodes); do wait_for_ssh "$node" "$wait_seconds"; done
}

stop_all() {
    local node
    # Brokers first: the managers hear them go.
    for node in $(nodes | sed -n '1!G;h;$p'); do
        if is_machine "$node"; then shut_down "$node" || exit 1; power_off "$node" || exit 1; fi
    done
}

status() {
    local node state
    for node in $(nodes); do
        state=missing
        ! is_machine "$node" || look_at "$node"
        printf '%-20s %-10s %-16s %s\n' "${node#"$prefix"-}" "$state" "$(address_of "$node")" "$(roles_of "$node")"
    done
    in_cluster myqueue health --bootstrap BALANCER || fail 'not everything is alive'
}

known_node() {
    [ $# -eq 1 ] || wrong "$command wants one NODE, like broker-1"
    node=$(full_name "$1")
    has_line "$node" "$(nodes)" || wrong "there is no node $1: $(nodes | sed "s/^$prefix-//" | tr '\n' ' ')"
    is_machine "$node" || [ "$command" = remove-broker ] || fail "$1 has no machine yet: up makes it"
}

# One that was cut short goes on with the same broker, instead of adding another one.
add_broker() {
    [ -f "$home/adding" ] || { next_broker >"$home/adding.new" && mv -f "$home/adding.new" "$home/adding"; }
    has_line "$(cat "$home/adding")" "$(printf '%s' "$brokers" | tr ' ' '\n')" || brokers="$brokers $(cat "$home/adding")"
    say "adding broker-$(cat "$home/adding")"
    up
}

remove_broker() {
    local number
    number=$(number_of "$node")
    if is_manager "$node"; then fail "$node is a manager too: it cannot be removed"; fi
    [ "$brokers" != "$number" ] || fail 'this is the only broker'
    # The cluster drains it and takes it out, or refuses and says why; nothing is deleted then.
    in_cluster /opt/myqueue/current/.venv/bin/python /opt/myqueue/current/scripts/provision/remove_broker.py --bootstrap BALANCER \
        --host "$(address_of "$node")" || fail "$node stays: the line above says why"
    brokers=$(printf '%s' "$brokers" | tr ' ' '\n' | grep -vx "$number" | tr '\n' ' ' | sed 's/ $//')
    delete_machine "$node" || exit 1
    forget_host_key "$node"
    write_plan
}

check_name() {
    [ $# -eq 1 ] || wrong "$command wants one NAME"
    case $1 in '' | *[!A-Za-z0-9_.-]* | "$prepared") wrong "$1: letters, digits and ._- are wanted for a snapshot's name" ;; esac
}

# A state of all machines together, all of them stopped. One that was cut short is begun anew, since machines may have run since.
take_snapshot() {
    local node
    [ ! -f "$home/snapshots/$1" ] || fail "there is a snapshot $1 already"
    stop_all
    for node in $(nodes); do
        if has_snapshot "$node" "$1"; then vbox snapshot "$node" delete "$1" || exit 1; fi
        vbox snapshot "$node" take "$1" || exit 1
    done
    mkdir -p "$home/snapshots"
    cp "$home/plan" "$home/snapshots/$1.new"
    mv -f "$home/snapshots/$1.new" "$home/snapshots/$1"
    start_all
    wait_for_health
}

restore_snapshot() {
    local node
    [ -f "$home/snapshots/$1" ] || fail "there is no snapshot $1"
    cmp -s "$home/plan" "$home/snapshots/$1" || fail "the cluster has other machines than when the snapshot $1 was taken"
    # While only some have gone back none may start: what one has forgotten would count against what the others have acknowledged since.
    printf '%s\n' "$1" >"$home/restoring"
    for node in $(nodes); do power_off "$node" || exit 1; done
    for node in $(nodes); do vbox snapshot "$node" restore "$1" || exit 1; done
    rm -f "$home/restoring"
    start_all
    wait_for_health
}

destroy() {
    local machine last=''
    [ "${1:-}" = --yes ] || wrong 'destroy deletes the machines and their data: destroy --yes'
    look_around
    ! is_machine "$base" || last=$base # the others' disks hang on it
    for machine in $(printf '%s\n' "$machines" | grep -vx -- "$base") $last; do
        if is_ours "$machine"; then delete_machine "$machine" || exit 1; else say "$machine is not in the group /$prefix and is left alone"; fi
    done
    remove_network || exit 1
    ! is_registered "$base_disk" || vbox closemedium disk "$base_disk" --delete || exit 1
    ! is_registered "$home/making.vdi" || vbox closemedium disk "$home/making.vdi" --delete || exit 1
    rm -rf "$home/base.vdi" "$home/making.vdi" "$home/installing" "$home/machines" "$home/seeds" "$home/snapshots" "$home/known_hosts" \
        "$home/interfaces.before" "$home/key" "$home/key.pub" "$home/secrets" "$home/plan" "$home/installer-password" "$home/vbox.out" "$home/vbox.err" \
        "$home/adding" "$home/restoring" "$home/lock"
}

read_plan
if [ "$command" = up ]; then parse_up "$@"; fi
# shellcheck source=../setup.sh
. "$project/scripts/setup.sh"
# shellcheck source=host.sh
. "$here/host.sh"
trap 'finish $?' EXIT
case $command in
    up | add-broker | remove-broker | snapshot | restore | down | destroy | stop | kill | start) take_lock ;;
esac
# shellcheck source=machines.sh
. "$here/machines.sh"
# shellcheck source=nodes.sh
. "$here/nodes.sh"
check_tools
case $command in
    up | destroy) ;;
    *) [ -n "$planned" ] || fail "there is no cluster in $home: up makes one" ;;
esac
case $command in
    up | add-broker | remove-broker | start | snapshot) [ ! -f "$home/restoring" ] || fail "the restore of $(cat "$home/restoring") was cut short: run it again first" ;;
esac

case $command in
    up) up ;;
    status) status ;;
    ssh)
        [ $# -gt 0 ] || wrong 'ssh wants a NODE, like broker-1'
        known_node "$1"
        shift
        on "$node" "$@"
        ;;
    stop) known_node "$@"; shut_down "$node" ;;
    kill) known_node "$@"; power_off "$node" ;;
    start) known_node "$@"; start_machine "$node"; wait_for_ssh "$node" "$wait_seconds" ;;
    add-broker) add_broker ;;
    remove-broker) known_node "$@"; remove_broker ;;
    snapshot) check_name "$@"; take_snapshot "$1" ;;
    restore) check_name "$@"; restore_snapshot "$1" ;;
    snapshots) [ ! -d "$home/snapshots" ] || ls "$home/snapshots" ;;
    down) stop_all ;;
    destroy) destroy "$@" ;;
esac
