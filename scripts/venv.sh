#!/bin/sh
# Make the virtual environment: venv.sh PYTHON FOLDER. Says clearly what is missing.
set -eu
python=$1
folder=$2
if ! command -v "$python" >/dev/null 2>&1; then
    echo "turnstream needs Python 3.11 or newer; '$python' isn't there (set PYTHON=…)" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "turnstream needs Python 3.11 or newer; '$python' is $("$python" -V 2>&1) (set PYTHON=…)" >&2
    exit 1
fi
[ -x "$folder/bin/pip" ] && exit 0
if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    # Debian ships venv in a package of its own.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get update -qq && apt-get install -y -qq python3-venv
    else
        echo "this Python has no venv module: install it (Debian: apt-get install python3-venv) and try again" >&2
        exit 1
    fi
fi
"$python" -m venv "$folder"
"$folder/bin/pip" install --quiet --upgrade pip
