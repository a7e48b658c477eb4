# Sourced by backup: puts a backup in the place of the server's data, in steps that may be cut short and run again.
#
# Wants data (the server's folder), folder (with the backup), wanted (what was asked for, in one line), state (a folder for the two files
# below), the functions of ensure.sh, and check_backup, copy_backup (to $data.new), services, stop_server, start_server, settle_identities.
#
# While `restoring` is there the services do not start (AssertPathExists in their units), not even after a boot: their databases may be an old
# copy that still calls itself the disk that the cluster knows. `restored` says that only the services are left to be started.

: "${data:?}" "${folder:?}" "${state:?}" "${wanted:?}"
restoring=$state/restoring restored=$state/restored

put_back() {
    if [ "$(cat "$restored" 2>/dev/null)" = "$wanted" ]; then
        say 'the data are in place: the services are left to be started'
    else
        put_data_back
    fi
    services start
    rm -f "$restored"
    say "done: $folder/base is in place; the old data are in $data.before-restore until you delete them"
}

put_data_back() {
    if [ -e "$restoring" ]; then
        say 'a restore was cut short: it is begun anew, the old data stay'
    elif [ -e "$data.before-restore" ]; then
        fail "$data.before-restore is there: data of an earlier restore; delete them first"
    fi
    check_backup
    rm -rf "$data.new"
    copy_backup
    keep "$wanted" "$restoring"
    services stop
    stop_server
    # What was moved away in the first attempt is the old data; what lies in their place since then is a copy of a backup, and used by nobody.
    if [ -e "$data.before-restore" ]; then rm -rf "$data"; else mv -T "$data" "$data.before-restore"; fi
    mv -T "$data.new" "$data"
    sync -f "${data%/*}"
    start_server
    settle_identities
    mv -f "$restoring" "$restored"
    sync -f "$state"
}

keep() { # TEXT FILE
    mkdir -p "${2%/*}"
    printf '%s\n' "$1" >"$2.new"
    sync "$2.new"
    mv -f "$2.new" "$2"
    sync -f "${2%/*}"
}
