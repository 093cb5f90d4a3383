#!/usr/bin/env bash
# Builds the fuzz targets of core/fuzz under AddressSanitizer and UndefinedBehaviorSanitizer, and runs one after the
# other from where it was; then the fuzz tests of the Python side.
#     scripts/fuzz.sh SECONDS [target...]        Python is taken from $PYTHON, default .venv/bin/python
# SECONDS are of the target's own CPU time, so that a busy machine makes it take longer and try no less.
# What a target has learnt stays in .cache/fuzz/TARGET/corpus, what it has found in .cache/fuzz/TARGET/finds. The exit
# code is 1 where there is a find.
#
# HEADRACE_CODECS=PREFIX links the codecs of a wheel instead of the system's. Built as follows they are watched, too:
#     CC=clang CFLAGS="-g -O1 -fsanitize=address,fuzzer-no-link" scripts/build_codecs.sh PREFIX
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
python=${PYTHON:-.venv/bin/python}
[ $# -gt 0 ] || set -- jpeg transcode png png_rows raw tar zip index cache view augment dense sidecar manifest coco saved_dataset
keep=.cache/fuzz
build=build/fuzz${HEADRACE_CODECS:+-codecs}

# Sets cpu_s: the CPU seconds of all that this shell has waited for. (In a subshell, `times` would tell of that one.)
count_cpu() {
    times >"$keep/times"
    cpu_s=$(awk 'NR == 2 {split($0, part, /[ms ]+/); printf "%d", part[1] * 60 + part[2] + part[3] * 60 + part[4]}' "$keep/times")
}

# libFuzzer knows the time of the wall alone, and uses no more CPU time than passes of it: whatever is left, a slice that
# long does not exceed it.
run_target() {
    local here=$keep/$1 status=0 began left=$seconds
    mkdir -p "$here/corpus" "$here/finds"
    : >"$here/log"
    count_cpu
    began=$cpu_s
    while [ "$left" -gt 0 ] && [ "$status" -eq 0 ]; do
        # A hang is 10 s for what takes a thousandth; memory is the sanitizer's, several times that of the core.
        "$build/core/fuzz/fuzz_$1" -max_total_time="$left" -max_len=16384 -timeout=10 -rss_limit_mb=2048 \
            -print_final_stats=1 -artifact_prefix="$here/finds/" "$here/corpus" "$keep/seeds/$1" >>"$here/log" 2>&1 || status=$?
        count_cpu
        left=$((seconds - cpu_s + began))
    done
    awk -v target="$1" -v cpu="$((cpu_s - began))" '/ cov: / {line = $0}
        /counters\)/ {edges = $5; gsub(/[^0-9]/, "", edges)}
        /number_of_executed_units/ {runs += $2}
        END {match(line, / cov: [0-9]+/); reached = substr(line, RSTART + 6, RLENGTH - 6)
             printf "%-45s %6d s of CPU %12d runs   %d of %d edges\n", target, cpu, runs, reached, edges}' "$here/log"
    [ "$status" -eq 0 ] || tail -n 40 "$here/log"
    return "$status"
}

# What takes memory by what a file claims has a failed allocation, and not the machine down.
run_python() (
    ulimit -v 4194304
    HEADRACE_FUZZ_SECONDS=$seconds "$python" -m pytest -p no:cacheprovider --timeout 0 "tests/fuzz/test_fuzz_$1.py"
)

mkdir -p "$keep"
if [[ " $* " =~ " "(jpeg|transcode|png|png_rows|raw|tar|zip|index|cache|view|augment|dense)" " ]]; then
    clang=$(scripts/clang.sh)
    cmake -S . -B "$build" -DCMAKE_CXX_COMPILER="$clang" -DCMAKE_BUILD_TYPE=Release -DHEADRACE_BUILD=fuzz \
        -DHEADRACE_SANITIZE=address,undefined,float-cast-overflow -DHEADRACE_CODECS="${HEADRACE_CODECS:-}" >/dev/null
    cmake --build "$build" --parallel 2 >"$build/log" || { cat "$build/log" && exit 1; }
    "$python" tests/fuzz_seeds.py "$keep/seeds"
fi
found=0
for target in "$@"; do
    if [ -f "tests/fuzz/test_fuzz_$target.py" ]; then run=run_python; else run=run_target; fi
    "$run" "$target" || found=1
done
exit "$found"
