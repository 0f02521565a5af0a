#!/bin/bash
# Usage: AT_ONCE=... AT_ONCE_ON_CLUSTERS=... tests/all.sh PYTHON OPTIONS...
# Runs `make lint` and every test, with pytest and its OPTIONS. Some things run behind others, at the lowest priority:
# `make lint` and the build of images and Kubernetes behind the integration tests; unit tests, tests with Spark, valgrind
# and two minutes of random conversations behind the rest of that build and the tests of the cluster, which do not use
# two processors all the time. If the build fails, the tests that need it report why. At the end, the rights that the
# tests of the cluster have used are compared with those that the chart gives.
set -u
cd "$(dirname "$0")/.." || exit 1
spark="tests/integration/flow_analysis tests/integration/cli/test_flows.py tests/security/test_old_tls_versions.py"
python=$1
shift
options=("$@")
outputs=$(mktemp -d)
behind=()
# `nice` alone leaves too little time to the pods of a cluster, which together have the share of one process.
lowest=(nice -n 19)
if command -v chrt >/dev/null; then lowest+=(chrt --idle 0); fi
start_behind() { # NAME COMMAND...
    local name=$1
    shift
    "${lowest[@]}" env --default-signal=INT "$@" >"$outputs/$name" 2>&1 &
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
start_behind lint make lint
lint=$!
status=0
# shellcheck disable=SC2086
tests/run.sh "$python" "tests/integration tests/security" $AT_ONCE --ignore=${spark// / --ignore=} "${options[@]}" || status=$?
[ "$status" -lt 2 ] || exit "$status"

start_behind unit tests/run.sh "$python" "$spark tests/unit" -n 2 --dist loadfile --no-loadscope-reorder "${options[@]}"
unit=$!
if command -v valgrind >/dev/null; then
    start_behind valgrind "$python" -m tests.memcheck --plays 10
else
    start_behind valgrind echo "valgrind is not installed: the kernel was not run under it (make valgrind)"
fi
valgrind=$!
start_behind fuzz "$python" -m tests.security.fuzz --seconds 120 --seed 3000 --most-megabytes 150 --last "$outputs/seed"
fuzz=$!
wait "$build"
# shellcheck disable=SC2086
if ISTHMUS_TEST_RIGHTS=$outputs/rights tests/run.sh "$python" tests/cluster $AT_ONCE_ON_CLUSTERS "${options[@]}"; then
    "$python" -m tests.cluster.rights "$outputs/rights" >"$outputs/used" 2>&1 || status=$?
else
    status=$?
    echo "rights: not compared, as tests of the cluster failed" >"$outputs/used"
fi
wait "$lint" || status=$?
wait "$unit" || status=$?
wait "$valgrind" || status=$?
wait "$fuzz" || {
    status=$?
    echo "The fuzzer ended with status $status at seed $(cat "$outputs/seed")" >>"$outputs/fuzz"
}
cat "$outputs/lint" "$outputs/unit" "$outputs/valgrind" "$outputs/fuzz" "$outputs/used"
exit "$status"
