#!/usr/bin/env bash
set -euo pipefail

usage() {
    cat <<'HELP'
usage: scripts/provision/node.sh --role ROLE[,ROLE…] --address ADDRESS --managers ADDRESS[,ADDRESS…] --secrets DIR [OPTIONS]
       scripts/provision/node.sh --prepare

Makes this machine, a VM, a bare server or a test host with Debian 12 or later, a node of a MyQueue cluster: packages, PostgreSQL
with a database and login per role, a system user, the code with its Python packages, settings, systemd units. The code is the
project that this script lies in. It may be repeated at any time: what is as it should be stays, what changed is restarted, also
by a later run where this one is cut short. A newer
project's script upgrades the node. Needs root; the network only for packages that are not there yet.

  --role ROLE           broker, manager or balancer, or several with commas
  --address ADDRESS     this machine's IPv4 address in the cluster; the services listen there
  --managers ADDRESSES  of all machines with a manager, in the order of their numbers, the same on every machine
  --secrets DIR         secret, token and reader, as new-secrets makes them; needed the first time, then kept in /etc/myqueue
  --number N            this machine's number as a broker, it names the database (default 1)
  --allow NETWORK       from where Spark may read the databases, as 192.168.61.0/24 (default: nowhere but here)
  --listen ADDRESS      where the balancer listens, if not at --address: 0.0.0.0 is everywhere
  --broker-port PORT    (default 9095)
  --manager-port PORT   (default 9094), the same on every machine
  --balancer-port PORT  (default 9092)
  --db-port PORT        (default 5432)
  --archive DIR         keep PostgreSQL's write-ahead log there, for backups
  --wheels DIR          take the Python packages from this folder instead of the network
  --no-start            set up, but start nothing
  --prepare             install everything that is the same for all machines and stop: packages and code
  --check               change nothing: say what differs, and end with 1 if anything does

Settings of your own go to /etc/myqueue/ROLE.local.env, one VARIABLE=value a line.
exit codes: 0 done, 1 failed or (--check) different, 2 usage
HELP
}

wrong() {
    printf 'node: %s\n' "$1" >&2
    printf 'usage: scripts/provision/node.sh --role ROLE --address A --managers A,A,A --secrets DIR (--help says more)\n' >&2
    exit 2
}

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
project=$(cd -- "$here/../.." && pwd -P)
ensure_program=node ensure_check=''
role='' address='' managers='' secrets='' number=1 allow='' listen='' wheels='' archive='' start=yes prepare=''
broker_port=9095 manager_port=9094 balancer_port=9092 db_port=5432
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --check) ensure_check=yes ;;
        --prepare) prepare=yes ;;
        --no-start) start='' ;;
        --role | --address | --managers | --secrets | --number | --allow | --listen | --wheels | --archive | --broker-port | --manager-port | --balancer-port | --db-port)
            [ $# -gt 1 ] || wrong "$1 needs a value"
            flag=${1#--}
            printf -v "${flag//-/_}" '%s' "$2"
            shift
            ;;
        *) wrong "there is no option $1" ;;
    esac
    shift
done

is_address() { [[ $1 =~ ^[0-9]{1,3}(\.[0-9]{1,3}){3}$ ]]; }
has_role() { case ,$role, in *",$1,"*) return 0 ;; *) return 1 ;; esac; }

check_usage() {
    local one place=0
    [[ $role =~ ^(broker|manager|balancer)(,(broker|manager|balancer))*$ ]] || wrong "--role ${role:-is missing}: broker, manager or balancer, or several with commas"
    is_address "$address" || wrong "--address ${address:-is missing}: an IPv4 address is wanted"
    [ -n "$managers" ] || wrong '--managers is missing'
    manager_number='' manager_urls='' numbered_managers=''
    for one in ${managers//,/ }; do
        is_address "$one" || wrong "--managers: $one is not an IPv4 address"
        place=$((place + 1))
        [ "$one" != "$address" ] || manager_number=$place
        manager_urls="${manager_urls:+$manager_urls,}http://$one:$manager_port"
        numbered_managers="${numbered_managers:+$numbered_managers,}$place=http://$one:$manager_port"
    done
    ! has_role manager || [ -n "$manager_number" ] || wrong "--managers does not have $address, which is to be a manager"
    [[ $number =~ ^[1-9][0-9]{0,4}$ ]] || wrong "--number $number: a number from 1 is wanted"
    for one in "$broker_port" "$manager_port" "$balancer_port" "$db_port"; do
        [[ $one =~ ^[1-9][0-9]{0,4}$ ]] && [ "$one" -le 65535 ] || wrong "$one is no port"
    done
    [ -z "$listen" ] || is_address "$listen" || wrong "--listen $listen: an IPv4 address is wanted"
}

[ -n "$prepare" ] || check_usage

# shellcheck source=ensure.sh
. "$here/ensure.sh"
# shellcheck source=install-code.sh
. "$here/install-code.sh"
# shellcheck source=services.sh
. "$here/services.sh"
ensure_debian
[ -n "$ensure_check" ] || ensure_alone
[ ! -e /etc/myqueue/restoring ] || fail 'a restore was cut short on this machine: run scripts/provision/backup --restore once more first'

install_packages() {
    ensure_packages python3 python3-venv ca-certificates
    if [ -n "$prepare" ] || has_role broker || has_role manager; then
        "$project/scripts/install-db" --packages ${ensure_check:+--check} || { [ -n "$ensure_check" ] && ! differs "PostgreSQL's packages"; } || exit 1
    fi
    # Signatures between nodes are good for a minute, so the machines' clocks have to agree.
    case " $(dpkg-query -W -f '${db:Status-Status} ' chrony ntpsec openntpd systemd-timesyncd 2>/dev/null) " in
        *' installed '*) ;;
        *) ensure_packages systemd-timesyncd ;;
    esac
}

ensure_user() {
    id myqueue >/dev/null 2>&1 || ! differs 'system user myqueue' ||
        useradd --system --user-group --home-dir /var/lib/myqueue --no-create-home --shell /usr/sbin/nologin myqueue
}

keep_secrets() {
    local name
    ensure_folder /etc/myqueue 0755 root:root
    ensure_folder /etc/myqueue/db 0700 root:root
    for name in secret token reader; do
        [ -z "$secrets" ] || [ -s "$secrets/$name" ] || fail "$secrets/$name is not there: new-secrets makes it"
    done
    if [ -n "$secrets" ]; then
        ensure_file /etc/myqueue/secret 0600 myqueue:myqueue <"$secrets/secret"
        ensure_file /etc/myqueue/token 0600 root:root <"$secrets/token"
        ensure_file /etc/myqueue/db/reader 0600 root:root <"$secrets/reader"
    else
        for name in secret token db/reader; do
            [ -s "/etc/myqueue/$name" ] || fail "/etc/myqueue/$name is not there: --secrets DIR is needed the first time"
        done
    fi
}

install_databases() {
    local options=(--listen "$address" --port "$db_port") nodes=()
    ! has_role broker || nodes+=("broker-$number")
    ! has_role manager || nodes+=("manager-$manager_number")
    [ ${#nodes[@]} -gt 0 ] || return 0
    [ -z "$allow" ] || options+=(--allow "$allow")
    [ -z "$archive" ] || options+=(--archive "$archive")
    [ -z "$ensure_check" ] || options+=(--check)
    MYQUEUE_DB_PYTHON=$current/.venv/bin/python "$project/scripts/install-db" "${options[@]}" "${nodes[@]}" ||
        { [ -n "$ensure_check" ] && ! differs 'the databases'; } || fail 'the databases could not be made'
}

# A database of this machine, by the address at which Spark finds it too. The way there is inside the kernel: no encryption.
database_url() {
    local password
    password=$(cat "/etc/myqueue/db/$1" 2>/dev/null || true)
    printf 'postgresql://%s:%s@%s:%s/%s?sslmode=disable' "myqueue_${1//-/_}" "$password" "$address" "$db_port" "myqueue_${1//-/_}"
}

write_settings() {
    local token
    token=$(cat /etc/myqueue/token 2>/dev/null || true)
    ! has_role broker || ensure_file /etc/myqueue/broker.env 0600 root:root <<ENV
MYQUEUE_BROKER_HOST=$address
MYQUEUE_BROKER_PORT=$broker_port
MYQUEUE_BROKER_MANAGERS=$manager_urls
MYQUEUE_BROKER_DATABASE_URL=$(database_url "broker-$number")
MYQUEUE_BROKER_READER_USER=myqueue_reader
MYQUEUE_BROKER_SECRET_FILE=/etc/myqueue/secret
MYQUEUE_TOKEN=$token
ENV
    ! has_role manager || ensure_file /etc/myqueue/manager.env 0600 root:root <<ENV
MYQUEUE_MANAGER_HOST=$address
MYQUEUE_MANAGER_PORT=$manager_port
MYQUEUE_MANAGER_NODE_ID=$manager_number
MYQUEUE_MANAGER_MANAGERS=$numbered_managers
MYQUEUE_MANAGER_DATABASE_URL=$(database_url "manager-$manager_number")
MYQUEUE_MANAGER_READER_USER=myqueue_reader
MYQUEUE_MANAGER_SECRET_FILE=/etc/myqueue/secret
MYQUEUE_TOKEN=$token
ENV
    ! has_role balancer || ensure_file /etc/myqueue/balancer.env 0600 root:root <<ENV
MYQUEUE_BALANCER_HOST=${listen:-$address}
MYQUEUE_BALANCER_PORT=$balancer_port
MYQUEUE_BALANCER_MANAGERS=$manager_urls
MYQUEUE_BALANCER_NODE=balancer-$address
MYQUEUE_BALANCER_SECRET_FILE=/etc/myqueue/secret
MYQUEUE_TOKEN=$token
ENV
}

install_packages
ensure_user
install_code
if [ -z "$prepare" ]; then
    keep_secrets
    install_databases
    write_settings
    install_units
    run_services
fi
ensure_end
