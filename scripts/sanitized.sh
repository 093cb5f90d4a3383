#!/usr/bin/env bash
# Builds the core with AddressSanitizer and UndefinedBehaviorSanitizer and runs the tests that feed it odd bytes.
#     scripts/sanitized.sh [pytest arguments]        Python is taken from $PYTHON, default .venv/bin/python
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(command -v "${PYTHON:-.venv/bin/python}")
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") # CMake takes a relative path for no path at all
build=build/sanitized
cmake -S . -B "$build/cmake" -DPython_EXECUTABLE="$python" \
    -DCMAKE_BUILD_TYPE=Release -DHEADRACE_SANITIZE=address,undefined,float-cast-overflow >/dev/null
cmake --build "$build/cmake" --parallel 2
rm -rf "$build/lib"
mkdir -p "$build/lib"
cp -r src/headrace "$build/lib/headrace"
rm -f "$build"/lib/headrace/_core*.so
cmake --install "$build/cmake" --prefix "$build/lib" >/dev/null
# An editable install finds its own build first, whatever PYTHONPATH says.
cat >"$build/lib/sitecustomize.py" <<'END'
import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "ScikitBuildRedirectingFinder"]
END
if [ $# -eq 0 ]; then
    set -- tests/test_png.py tests/test_jpeg_windows.py tests/test_jpeg_baseline.py tests/test_resample.py \
        tests/test_loader_pixels.py tests/test_bad_*.py tests/test_battery.py tests/test_zip_source.py \
        tests/test_decode_image.py tests/test_decode_image_errors.py tests/data
fi
# Python and numpy keep memory to the end: leaks of theirs are not what is looked for. pytest's own capture hides
# sanitizer reports, so a report ends the run (halt_on_error) and the message goes to the terminal.
LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)" \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    PYTHONPATH="$build/lib" "$python" -m pytest -p no:cacheprovider "$@"
