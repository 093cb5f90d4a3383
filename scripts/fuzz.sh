#!/usr/bin/env bash
# Builds the fuzz targets of core/fuzz under AddressSanitizer and UndefinedBehaviorSanitizer, and runs one after the
# other from where it was; then the fuzz tests of the Python side.
#     scripts/fuzz.sh SECONDS [target...]        SECONDS for each; Python is taken from $PYTHON, default .venv/bin/python
# What a target has learnt stays in .cache/fuzz/TARGET/corpus, what it has found in .cache/fuzz/TARGET/finds. The exit
# code is 1 where there is a find.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
python=${PYTHON:-.venv/bin/python}
[ $# -gt 0 ] || set -- jpeg png png_rows tar zip index view python
keep=.cache/fuzz
build=build/fuzz

run_target() {
    local here=$keep/$1 status=0
    mkdir -p "$here/corpus" "$here/finds"
    # A hang is 10 s for what takes a thousandth; memory is the sanitizer's, several times that of the core.
    "$build/core/fuzz/fuzz_$1" -max_total_time="$seconds" -max_len=16384 -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$here/finds/" "$here/corpus" "$keep/seeds/$1" >"$here/log" 2>&1 || status=$?
    awk -v target="$1" '/ cov: / {line = $0} /counters\)/ {edges = $5; gsub(/[^0-9]/, "", edges)}
        /number_of_executed_units/ {runs = $2}
        END {match(line, / cov: [0-9]+/); reached = substr(line, RSTART + 6, RLENGTH - 6)
             printf "%-10s %12d runs   %d of %d edges reached\n", target, runs, reached, edges}' "$here/log"
    [ "$status" -eq 0 ] || tail -n 40 "$here/log"
    return "$status"
}

run_python() { HEADRACE_FUZZ_SECONDS=$seconds "$python" -m pytest -p no:cacheprovider --timeout 0 tests/fuzz; }

if [[ " $* " =~ " "(jpeg|png|png_rows|tar|zip|index|view)" " ]]; then
    clang=$(scripts/clang.sh)
    cmake -S . -B "$build" -DCMAKE_CXX_COMPILER="$clang" -DCMAKE_BUILD_TYPE=Release -DHEADRACE_BUILD=fuzz \
        -DHEADRACE_SANITIZE=address,undefined,float-cast-overflow >/dev/null
    cmake --build "$build" --parallel 2 | grep -v '^\[' || true
    "$python" tests/fuzz_seeds.py "$keep/seeds"
fi
found=0
for target in "$@"; do
    if [ "$target" = python ]; then run_python || found=1; else run_target "$target" || found=1; fi
done
exit "$found"
