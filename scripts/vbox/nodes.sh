# Sourced by cluster.sh: names, addresses and roles of the nodes, and what is done on them by ssh. Written for bash 3.2.
#
# Wants, beside what machines.sh has: project, managers (their number), brokers (a list of numbers), together, port.

: "${project:?}" "${managers:?}" "${port:?}" "${home:?}" "${prefix:?}" "${base:?}" "${network:?}" "${wait_seconds:?}"
brokers=${brokers:?} together=${together:-}
operator=operator # as seed.py names the login
key=$home/key

# Every node, managers first. With --together the managers are on the first brokers' machines.
nodes() {
    local number
    if [ -z "$together" ]; then
        for number in $(seq 1 "$managers"); do printf '%s\n' "$prefix-manager-$number"; done
    fi
    for number in $brokers; do printf '%s\n' "$prefix-broker-$number"; done
}

full_name() { case $1 in "$prefix"-*) printf '%s' "$1" ;; *) printf '%s-%s' "$prefix" "$1" ;; esac; }
number_of() { printf '%s' "${1##*-}"; }

# The last number of a node's address: managers from 11, brokers from 101, the base 9.
host_number() {
    case $1 in
        "$base") printf 9 ;;
        "$prefix"-manager-*) printf '%s' $((10 + $(number_of "$1"))) ;;
        *) printf '%s' $((100 + $(number_of "$1"))) ;;
    esac
}

address_of() { printf '%s.%s' "$network" "$(host_number "$1")"; }

manager_nodes() {
    local number kind=manager
    [ -z "$together" ] || kind=broker
    for number in $(seq 1 "$managers"); do printf '%s\n' "$prefix-$kind-$number"; done
}

is_manager() { has_line "$1" "$(manager_nodes)"; }

roles_of() {
    local roles=''
    ! is_manager "$1" || roles=manager,balancer
    case $1 in "$prefix"-broker-*) roles=${roles:+$roles,}broker ;; esac
    printf '%s' "$roles"
}

# The port of this computer that leads to a node's balancer, if it has one: the first one's is the port itself, the next one's the next.
forward_of() { ! is_manager "$1" || printf '%s' $((port + $(number_of "$1") - 1)); }

manager_addresses() {
    local node addresses=''
    for node in $(manager_nodes); do addresses=${addresses:+$addresses,}$(address_of "$node"); done
    printf '%s' "$addresses"
}

# --- ssh ---

# on NODE COMMAND…: standard input goes there too.
on() {
    local node=$1
    shift
    ssh -i "$key" -o BatchMode=yes -o ConnectTimeout=5 -o ServerAliveInterval=10 -o StrictHostKeyChecking=accept-new \
        -o UserKnownHostsFile="$home/known_hosts" -o LogLevel=ERROR "$operator@$(address_of "$node")" "$@" 8>&-
}

forget_host_key() { [ ! -f "$home/known_hosts" ] || ssh-keygen -q -R "$(address_of "$1")" -f "$home/known_hosts" >/dev/null 2>&1 || true; }

wait_for_ssh() { # NODE SECONDS
    keep_trying "$2" "$1 to answer by ssh" answers "$1" || fail "$1 does not answer at $(address_of "$1") after $2 s: look at its console in VirtualBox"
}

answers() { on "$1" true </dev/null 2>/dev/null; }

send_code() {
    COPYFILE_DISABLE=1 tar -C "$project" -cf - --exclude='*.pyc' --exclude=__pycache__ \
        broker manager load_balancer myqueue db pipeline scripts requirements.txt |
        on "$1" 'sudo rm -rf /srv/myqueue.new && sudo mkdir -p /srv/myqueue.new && sudo tar -xf - --no-same-owner -C /srv/myqueue.new && sudo rm -rf /srv/myqueue && sudo mv /srv/myqueue.new /srv/myqueue'
}

send_secrets() {
    COPYFILE_DISABLE=1 tar -C "$home" -cf - secrets |
        on "$1" 'sudo install -d -m 700 /run/myqueue && sudo tar -xf - --no-same-owner -C /run/myqueue'
}

# The same script as for a bare server; a second time it only looks, or upgrades to the code that lies here now.
provision() {
    say "provisioning $1"
    send_code "$1" || return 1
    send_secrets "$1" || return 1
    on "$1" "sudo /srv/myqueue/scripts/provision/node.sh --role $(roles_of "$1") --number $(number_of "$1") --address $(address_of "$1") \
--managers $(manager_addresses) --secrets /run/myqueue/secrets --allow $network.0/24 --listen 0.0.0.0" </dev/null
}

# in_cluster COMMAND…: run on the first manager that is on, with the cluster's token; BALANCER in it is that machine's balancer.
in_cluster() {
    local node words
    for node in $(manager_nodes); do
        if is_machine "$node" && is_state "$node" running; then
            words=$(printf '%s' "$*" | sed "s/BALANCER/$(address_of "$node"):9092/")
            on "$node" "sudo sh -c 'MYQUEUE_TOKEN=\$(cat /etc/myqueue/token); export MYQUEUE_TOKEN; exec $words'" </dev/null
            return
        fi
    done
    say 'no manager runs'
    return 1
}

wait_for_health() {
    keep_trying "$wait_seconds" 'all brokers and managers to be alive' is_healthy ||
        fail "not every broker and manager is alive after $wait_seconds s: scripts/vbox/cluster.sh status"
}

is_healthy() { in_cluster myqueue health --bootstrap BALANCER >/dev/null 2>&1; }

# In order: the guest shuts down its services and itself. A machine that cannot be spoken to gets the power button.
shut_down() {
    is_state "$1" running || return 0
    say "stopping $1"
    # The connection is cut, or it was not made; and the machine may be off between a look and a press of its button.
    on "$1" 'sudo systemctl poweroff' </dev/null >/dev/null 2>&1 || ! is_state "$1" running ||
        vbox controlvm "$1" acpipowerbutton || ! is_state "$1" running || return 1
    wait_for_state "$1" poweroff
}
