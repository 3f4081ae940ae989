#!/bin/sh
# Make .venv with everything that the other make targets need. Needs Python 3.11 or later and the network; safe to repeat,
# and quick when nothing changed: a stamp in .venv remembers for which uv.lock and pyproject.toml it was made.
set -eu
cd "$(dirname "$0")/.."

VENV=${VENV:-.venv}
STAMP=$VENV/.made-for

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

WALKER=src/sparrow/records/_walker

# A compiler that was installed since is a reason to build again.
wanted() { { cat uv.lock pyproject.toml scripts/setup.sh hatch_build.py $WALKER.c; command -v cc gcc || true; } | cksum; }

# A Python of at least 3.11: $PYTHON if given, else the first found.
find_python() {
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3.14 python3}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "Python 3.11 or later is needed and was not found; install it, or name it: make setup PYTHON=/path/to/python3"
}

# Runs apt-get if this machine has it and lets us (root, or sudo without a password); fails otherwise.
apt_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    as_root=
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null || return 1
        as_root="sudo -n"
    fi
    say "installing $* by apt-get"
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 && return
    $as_root apt-get update -qq >/dev/null 2>&1 || return 1
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}

make_venv() {
    python=$(find_python) || exit 1
    # Debian keeps ensurepip, which venv needs, in a package of its own.
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        apt_install "$package" || fail "$python has no venv module; install it, on Debian with: apt install $package"
    fi
    [ -x $VENV/bin/python ] && $VENV/bin/python -c 'import pip' 2>/dev/null || "$python" -m venv --clear $VENV
}

install_packages() {
    say "installing packages into $VENV (the first time takes a minute)"
    [ -x $VENV/bin/uv ] || $VENV/bin/python -m pip install --quiet --disable-pip-version-check uv
    # The system's certificates know a company's own authority, too; uv's built-in ones do not.
    [ ! -s /etc/ssl/certs/ca-certificates.crt ] || export UV_SYSTEM_CERTS=true
    VIRTUAL_ENV=$PWD/$VENV UV_PROJECT_ENVIRONMENT=$VENV \
        $VENV/bin/uv sync --quiet --frozen --inexact --compile-bytecode --extra server --extra cluster --python $VENV/bin/python \
        --reinstall-package sparrow-broker ||
        fail "the packages could not be installed; see the error above, and run it again"
}

# Records are checked by a small piece of C where a compiler is at hand, by Python code where none is. Nothing needs it, so it never fails the set-up;
# a compiler that is there but lacks Python's headers gets them.
find_headers() {
    command -v cc >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || return 0
    header=$($VENV/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
    [ -e "$header" ] && return
    package=$($VENV/bin/python -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])')
    apt_install "$package" libc6-dev || true
}

say_if_not_compiled() {
    [ -e $WALKER.abi3.so ] ||
        say "records are checked by Python code, which is slower: for the compiled one install gcc and python3-dev, then: make setup"
}

# Spark needs Java. Nothing else does, so its absence never fails the set-up.
find_java() {
    command -v java >/dev/null 2>&1 || apt_install default-jre-headless ||
        say "Java is missing; only the Spark parts need it. Install it, on Debian with: apt install default-jre-headless"
}

# One test drives the broker with kcat, a Kafka client from Debian, another makes certificates with openssl as the documents say, and
# the documents of the HTTP frontend use curl. The console is tested in chromium, and its types are checked by tsc. Without them those
# tests say that they were skipped.
find_tools() {
    for tool in kcat openssl curl chromium tsc; do
        package=$tool
        [ $tool != tsc ] || package=node-typescript
        command -v $tool >/dev/null 2>&1 || apt_install $package ||
            say "$tool is missing; tests are skipped without it. Install it, on Debian with: apt install $package"
    done
}

if [ -f $STAMP ] && [ "$(cat $STAMP)" = "$(wanted)" ]; then
    exit 0
fi
make_venv
find_headers
install_packages
say_if_not_compiled
find_java
find_tools
wanted >$STAMP
say "done"
