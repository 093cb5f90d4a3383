#!/usr/bin/env bash
# Builds the stress programs of core/stress under ThreadSanitizer and runs them.
#     scripts/stress.sh [ROUNDS [SEED]]
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/stress
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DHEADRACE_BUILD=stress -DHEADRACE_SANITIZE=thread >/dev/null
cmake --build "$build" --parallel 2 >"$build/log" || { cat "$build/log" && exit 1; }
# Kernels that scatter memory widely leave older ThreadSanitizers no room for their shadow: setarch turns that off.
for program in batch_queue cache_store; do
    TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 \
        setarch "$(uname -m)" --addr-no-randomize "$build/core/stress/stress_$program" "$@"
done
