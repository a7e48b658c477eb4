# Sourced by every command here: makes .venv where it is missing and sets
#   PYTHON      the interpreter in it
#   PYTHONPATH  with the project in it, so that commands work from any current folder
# The second time it only compares a stamp: instant, and without network. It speaks on standard error.
# MYQUEUE_PYTHON names the Python to build with, if it is not the first that fits.

myqueue_root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
myqueue_venv=$myqueue_root/.venv

_setup_say() { printf 'setup: %s\n' "$1" >&2; }

_setup_fail() {
    _setup_say "$1"
    exit 1
}

# What .venv must fit: the requirements, the folder it was made in (a moved .venv is broken), and the Python that it leads to, which may be
# another one since the system was upgraded.
_setup_stamp() { printf '%s in %s with %s' "$(cksum <"$myqueue_root/requirements.txt")" "$myqueue_venv" "$("$myqueue_venv/bin/python" -V 2>&1)"; }

_setup_is_stamped() {
    [ -x "$myqueue_venv/bin/python" ] && [ "$(cat "$myqueue_venv/.stamp" 2>/dev/null)" = "$(_setup_stamp)" ]
}

_setup_find_python() {
    local candidate old='' bare=''
    for candidate in ${MYQUEUE_PYTHON:+"$MYQUEUE_PYTHON"} python3 python3.13 python3.12 python3.11 python; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        if ! "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            old="$candidate"
        elif ! "$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1; then
            bare="$candidate"
        else
            command -v "$candidate"
            return
        fi
    done
    [ -z "$bare" ] || _setup_fail "$bare has no venv module: install it (on Debian and Ubuntu: python3-venv), or set MYQUEUE_PYTHON to another Python"
    [ -z "$old" ] || _setup_fail "$old is older than 3.11: install Python 3.11 or later, or set MYQUEUE_PYTHON to it"
    _setup_fail "there is no Python: install Python 3.11 or later with venv, or set MYQUEUE_PYTHON to it"
}

# Whether .venv, whoever made it, holds every requirement in its pinned version.
_setup_is_complete() {
    [ -x "$myqueue_venv/bin/python" ] && "$myqueue_venv/bin/python" - "$myqueue_root/requirements.txt" <<'PYTHON' >/dev/null 2>&1
import importlib.metadata
import sys

for line in open(sys.argv[1], encoding="utf-8"):
    name, _, version = line.partition("#")[0].strip().partition("==")
    if name and importlib.metadata.version(name) != version:
        sys.exit(1)
PYTHON
}

_setup_make() {
    local python=$1 log=$myqueue_venv/setup.log begun=$SECONDS
    if [ -e "$myqueue_venv/.making" ] || ! "$myqueue_venv/bin/python" -m pip --version >/dev/null 2>&1; then
        [ ! -e "$myqueue_venv" ] || _setup_say "making $myqueue_venv anew: it is not whole"
        rm -rf -- "$myqueue_venv"
        _setup_say "making $myqueue_venv with $("$python" --version 2>&1)"
        { mkdir -p "$myqueue_venv" && touch "$myqueue_venv/.making"; } || _setup_fail "cannot write in $myqueue_root: make the folder writable"
        "$python" -m venv "$myqueue_venv" >&2 || _setup_fail "could not make $myqueue_venv"
    fi
    touch "$myqueue_venv/.making"
    _setup_say "installing requirements.txt: about a minute and 750 MB the first time"
    if ! "$myqueue_venv/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off \
        -r "$myqueue_root/requirements.txt" </dev/null 2>&1 | tee "$log" |
        sed -n -e 's/^Collecting \([^ ]*\).*/setup:   \1/p' -e 's/^Building wheels for.*/setup:   building …/p' \
            -e 's/^Installing collected packages.*/setup:   installing …/p' >&2; then
        grep -v '^ *$' "$log" | tail -n 12 >&2
        _setup_fail "the packages could not be installed (all of it: $log)"
    fi
    rm -f "$myqueue_venv/.making"
    _setup_say "done in $((SECONDS - begun)) s"
}

_setup_run() {
    local python
    python=$(_setup_find_python) || exit 1
    { mkdir -p "$myqueue_root/.venv-lock" && : >"$myqueue_root/.venv-lock/lock"; } 2>/dev/null ||
        _setup_fail "cannot write in $myqueue_root: make the folder writable"
    # The lock lies on our descriptor: whoever comes at the same time waits here, and it is gone with us however we end.
    exec 9>"$myqueue_root/.venv-lock/lock"
    "$python" -c 'import fcntl
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("setup: waiting for another one that is making .venv", flush=True)
    fcntl.flock(9, fcntl.LOCK_EX)' >&2
    if ! _setup_is_stamped; then
        if [ -e "$myqueue_venv/.making" ] || ! _setup_is_complete; then
            (set -o pipefail && _setup_make "$python") || exit 1
        fi
        _setup_stamp >"$myqueue_venv/.stamp"
    fi
    exec 9>&-
}

_setup_is_stamped || _setup_run
PYTHON=$myqueue_venv/bin/python
export PYTHON PYTHONPATH="$myqueue_root${PYTHONPATH:+:$PYTHONPATH}"
