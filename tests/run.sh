#!/bin/bash
# Usage: tests/run.sh PYTHON FOLDERS OPTIONS...
# Runs the tests in FOLDERS (one word, separated by blanks) with pytest and its OPTIONS. Failed tests run once more, alone
# on the machine: a failure that only load has caused is reported, and does not count. Many failures are no matter of load
# and do not run again.
set -u
python=$1 folders=$2
shift 2
most=40
# Thousands of processes are started from the same sources: without this, each of them would compile all of them.
unset PYTHONDONTWRITEBYTECODE
failed=$(mktemp)
trap 'rm -f "$failed"' EXIT

# shellcheck disable=SC2086
"$python" -m pytest --write-failed="$failed" "$@" $folders
status=$?
if [ "$status" != 1 ] || [ ! -s "$failed" ] || [ "$(wc -l <"$failed")" -gt "$most" ]; then exit "$status"; fi
echo
echo "These tests failed beside others. They run once more, alone (of clusters, their files):"
cat "$failed"
"$python" -m pytest -n 0 "@$failed"
