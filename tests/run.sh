#!/bin/bash
# Usage: tests/run.sh PYTHON FOLDERS OPTIONS...
# Runs the tests in FOLDERS (one word, separated by blanks) with pytest and its OPTIONS. The files with failed tests run
# once more, alone on the machine: a failure that only load has caused is reported, and does not count. Many failed
# files are no matter of load and do not run again.
set -u
python=$1 folders=$2
shift 2
most=20
# Thousands of processes are started from the same sources: without this, each of them would compile all of them.
unset PYTHONDONTWRITEBYTECODE
failed=$(mktemp)
trap 'rm -f "$failed"' EXIT

# shellcheck disable=SC2086
"$python" -m pytest --write-failed-files="$failed" "$@" $folders
status=$?
files=$(cat "$failed")
if [ "$status" != 1 ] || [ -z "$files" ] || [ "$(wc -l <"$failed")" -gt "$most" ]; then exit "$status"; fi
echo
echo "Tests in these files failed beside others. The files run once more, alone:"
echo "$files"
# shellcheck disable=SC2086
"$python" -m pytest -n 0 $files
