#!/bin/sh
# Static checks. They run on a strict editable install in an environment of their own (a link tree):
# the default editable install hides the folders from every static tool. Each tool must say how many
# files it read, so that none passes vacuously.
set -eu
mkdir -p build
ruff check .
ruff format --check .
pip install --quiet --no-deps --editable . -C editable_mode=strict
trap 'pip install --quiet --no-deps --editable .' EXIT
files=$(find pipeline messages operators sinks -name '*.py' | wc -l | tr -d ' ')
mypy >build/mypy.txt || { cat build/mypy.txt; exit 1; }
grep -q "in $files source files" build/mypy.txt || { cat build/mypy.txt; echo "mypy didn't read all $files files" >&2; exit 1; }
pyright --pythonpath "$(command -v python)" --stats >build/pyright.txt || { cat build/pyright.txt; exit 1; }
grep -q '^Found [1-9]' build/pyright.txt
grep -q '^0 errors' build/pyright.txt || { cat build/pyright.txt; exit 1; }
lint-imports --no-cache >build/imports.txt || { cat build/imports.txt; exit 1; }
read=$(sed -n 's/^Analyzed \([0-9]*\) files.*/\1/p' build/imports.txt) # ours and the packages they import
[ "${read:-0}" -ge "$files" ] || { cat build/imports.txt; echo "import-linter didn't read all $files files" >&2; exit 1; }
echo "ruff, mypy, pyright and import-linter are content with $files files"
