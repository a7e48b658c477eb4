# Sourced by node.sh: units and services. Each role is started anew where its code, settings or unit are others than those that it was last
# started with; the others are only seen to run. Wants the functions of ensure.sh and role, address, start, here, current and the ports.

here=${here:?} current=${current:?} role=${role:-} start=${start:-} address=${address:-}
broker_port=${broker_port:-} manager_port=${manager_port:-} balancer_port=${balancer_port:-}
units=/etc/systemd/system
settings=/etc/myqueue

install_units() {
    local one
    ensure_file /etc/systemd/journald@myqueue.conf 0644 root:root <"$here/units/journald@myqueue.conf"
    for one in ${role//,/ }; do
        ensure_file "$units/myqueue-$one.service" 0644 root:root <"$here/units/myqueue-$one.service"
    done
}

content_of_service() { ensure_content "$current" "$units/myqueue-$1.service" "$settings/$1.env" "$settings/$1.local.env" "$settings/secret"; }

run_services() {
    local one
    if ! ensure_is_systemd; then
        say 'systemd does not run here: the services are not started'
        return 0
    fi
    [ -n "$ensure_check" ] || systemctl daemon-reload || fail 'systemd does not take the units: systemctl daemon-reload'
    run_journal
    [ -n "$start" ] || return 0
    for one in ${role//,/ }; do run_service "$one"; done
    [ -n "$ensure_check" ] || wait_for_services
}

run_journal() {
    local content
    content=$(ensure_content /etc/systemd/journald@myqueue.conf)
    if ensure_is_started journal "$content" || ! differs 'the journal of the services takes its settings'; then return 0; fi
    systemctl try-restart systemd-journald@myqueue.service || fail 'systemd-journald@myqueue.service could not be restarted'
    ensure_started journal "$content"
}

run_service() {
    local unit=myqueue-$1.service content
    content=$(content_of_service "$1")
    if ! ensure_is_started "$1" "$content"; then
        differs "$unit is started anew" || return 0
        { systemctl enable -q "$unit" && systemctl restart "$unit"; } || fail "$unit does not start: systemctl status $unit"
        ensure_started "$1" "$content"
    elif ! { systemctl -q is-enabled "$unit" && systemctl -q is-active "$unit"; }; then
        differs "$unit is started" || return 0
        systemctl enable -q --now "$unit" || fail "$unit does not start: systemctl status $unit"
    fi
}

# Alive, not ready: the first managers wait for the others, and brokers for managers.
wait_for_services() {
    local one urls=''
    ! has_role broker || urls="$urls http://$address:$broker_port/livez"
    ! has_role manager || urls="$urls http://$address:$manager_port/livez"
    ! has_role balancer || urls="$urls http://$address:$balancer_port/livez"
    for one in $urls; do
        "$current/.venv/bin/python" - "$one" <<'PYTHON' || fail "$one does not answer: journalctl --namespace=myqueue says why"
import http.client
import sys
import time
import urllib.request

end = time.monotonic() + 60
while True:
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=2)
        break
    except (OSError, http.client.HTTPException):
        if time.monotonic() >= end:
            sys.exit(1)
        time.sleep(0.25)
PYTHON
    done
}
