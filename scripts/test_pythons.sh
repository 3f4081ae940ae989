#!/bin/sh
# Run the tests on every supported Python that this machine has, each in an environment of its own (.venv-3.X). Fails if one fails.
# Arguments are pytest's; without any, all tests run.
set -u
cd "$(dirname "$0")/.."

SUPPORTED="3.11 3.12 3.13 3.14"
WORKERS=${WORKERS:-3}

say() { printf 'test-pythons: %s\n' "$*" >&2; }

# An interpreter of the given version, also one that pyenv keeps out of the PATH.
find_python() {
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/"python$1"; do
        if "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

summary=
status=0
for version in $SUPPORTED; do
    if ! python=$(find_python "$version"); then
        summary="$summary
$version: not on this machine"
        continue
    fi
    say "$("$python" -V) at $python"
    if VENV=.venv-$version PYTHON=$python scripts/setup.sh && ".venv-$version/bin/pytest" -n "$WORKERS" -q "$@"; then
        result=passed
    else
        result=FAILED
        status=1
    fi
    summary="$summary
$version: $result"
done
say "$summary"
exit $status
