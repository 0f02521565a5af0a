#!/bin/bash
# Usage: AT_ONCE=... AT_ONCE_ON_CLUSTERS=... tests/all.sh PYTHON OPTIONS...
# Runs every test, with pytest and its OPTIONS. Some things run behind others, at the lowest priority: images and
# Kubernetes are built behind the integration tests, and unit tests and valgrind run behind the tests of the cluster,
# which leave the processors idle for a part of the time. If the build fails, the tests that need it say why.
set -u
cd "$(dirname "$0")/.." || exit 1
python=$1
shift
options=("$@")
outputs=$(mktemp -d)
behind=()
start_behind() { # NAME COMMAND...
    local name=$1
    shift
    nice -n 19 env --default-signal=INT "$@" >"$outputs/$name" 2>&1 &
    behind+=($!)
}
finish() {
    kill -INT "${behind[@]}" 2>/dev/null
    wait
    rm -rf "$outputs"
}
trap finish EXIT

start_behind build "$python" -m tests.cluster.prepare
build=$!
status=0
# shellcheck disable=SC2086
tests/run.sh "$python" "tests/integration tests/security" $AT_ONCE "${options[@]}" || status=$?
[ "$status" -lt 2 ] || exit "$status"
wait "$build"

start_behind unit tests/run.sh "$python" tests/unit -n 1 --dist loadfile "${options[@]}"
unit=$!
if command -v valgrind >/dev/null; then
    start_behind valgrind "$python" -m tests.memcheck --plays 20
else
    start_behind valgrind echo "valgrind is not installed: the kernel was not run under it (make valgrind)"
fi
valgrind=$!
# shellcheck disable=SC2086
tests/run.sh "$python" tests/cluster $AT_ONCE_ON_CLUSTERS "${options[@]}" || status=$?
wait "$unit" || status=$?
wait "$valgrind" || status=$?
cat "$outputs/unit" "$outputs/valgrind"
exit "$status"
