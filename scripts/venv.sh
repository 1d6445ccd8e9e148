# Virtual environments of this project: sourced by the scripts and by the Makefile, never run.
#
#   use_venv NAME LOCK...    makes .venv/NAME hold what the locks say and the project itself (editable, so
#                            that a change of the source needs no new install), and puts its bin on PATH.
#
# PYTHON=...          the interpreter to use; else the first of python3.11, 3.12, 3.13, python3 that is >= 3.11
# HEADWAY_VENVS=dir   where the environments are kept; else .venv at the root of the repository
#
# A stamp records what an environment was made of: when it still matches, nothing is installed. When it does
# not, the environment is made again from nothing, so that it never holds what a lock no longer names.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENVS="${HEADWAY_VENVS:-$ROOT/.venv}"
[[ $VENVS == /* ]] || VENVS="$PWD/$VENVS"
unset PYTHONHOME PYTHONPATH

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "headway: $1"
    shift
    for line in "$@"; do say "         $line"; done
    exit 1
}

milliseconds() {
    if [[ -n ${EPOCHREALTIME-} ]]; then
        printf '%s' "$((${EPOCHREALTIME/[.,]/} / 1000))"
    else
        printf '%s' "$((SECONDS * 1000))" # bash before 5.0
    fi
}

since() { # MILLISECONDS
    local passed=$(($(milliseconds) - $1))
    printf '%d.%d s' $((passed / 1000)) $((passed % 1000 / 100))
}

can_python() { "$1" -c "$2" >/dev/null 2>&1; } # a name on PATH may be a shim with nothing behind it

find_python() { # prints the interpreter
    local name version lame="" names=(python3.11 python3.12 python3.13 python3)
    if [[ -n ${PYTHON-} ]]; then names=("$PYTHON"); fi
    for name in "${names[@]}"; do
        can_python "$name" 'import sys; sys.exit(sys.version_info < (3, 11))' || continue
        if can_python "$name" 'import ensurepip, venv'; then
            printf '%s' "$name"
            return
        fi
        lame="${lame:-$name}"
    done
    if [[ -n $lame ]]; then
        version="$("$lame" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
        fail "$lame is Python $version, but cannot make virtual environments (no venv or ensurepip module)." \
            "On Debian and Ubuntu: apt-get install python$version-venv"
    elif [[ -n ${PYTHON-} ]]; then
        fail "PYTHON=$PYTHON is not a Python 3.11 or newer."
    else
        fail "no Python 3.11 or newer: tried python3.11, python3.12, python3.13, python3." \
            "On Debian 12 and later: apt-get install python3 python3-venv; or name one: PYTHON=/path/to/python"
    fi
}

make_stamp() { # PYTHON LOCK...: a hash of all that an environment is made of
    "$1" -I - "$ROOT" "${@:2}" <<'EOF'
import hashlib, json, os, pathlib, sys, tomllib

root, *locks = map(pathlib.Path, sys.argv[1:])
project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
made_of = [
    sys.version,
    os.path.realpath(sys.executable),
    str(root),
    [(str(lock), (root / lock).read_text(encoding="utf-8")) for lock in locks],
    [project["build-system"], project["project"], project["tool"]["hatch"]],  # not the settings of the tools
]
print(hashlib.sha256(json.dumps(made_of).encode()).hexdigest())
EOF
}

use_venv() { # NAME LOCK...
    local venv python started stamp lock
    venv="$VENVS/$1"
    shift
    python="$(find_python)" || exit 1
    mkdir -p "$VENVS" || fail "cannot make the folder $VENVS."
    stamp="$(make_stamp "$python" "$@")" || fail "cannot read pyproject.toml and $*: see above."
    exec 9>"$venv.lock" # two runs at once: the second waits for the first, then finds its work done
    if command -v flock >/dev/null; then flock 9; fi
    if [[ "$(cat "$venv/stamp" 2>/dev/null)" != "$stamp" ]] || ! can_python "$venv/bin/python" ''; then
        started="$(milliseconds)"
        say "headway: installing $* and the project into $venv ($("$python" -V)) ..."
        rm -rf "$venv"
        "$python" -m venv "$venv" || fail "could not make the virtual environment $venv."
        local pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input -qq install)
        local locks=()
        for lock in "$@"; do locks+=(-r "$ROOT/$lock"); done
        "${pip[@]}" --require-hashes "${locks[@]}" ||
            fail "could not install $*: see above. Is there a package index within reach of pip?"
        "${pip[@]}" --no-deps --no-build-isolation --editable "$ROOT" ||
            fail "could not install the project itself: see above."
        printf '%s\n' "$stamp" >"$venv/stamp"
        say "headway: installed in $(since "$started")"
    fi
    exec 9>&-
    export PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv"
}
