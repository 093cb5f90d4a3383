#!/usr/bin/env bash
# Print a clang++ that has libFuzzer, once the system has one.
#
# As root on Debian or Ubuntu what is missing is installed; otherwise the command that installs it is printed and the
# exit code is 1. CLANG= chooses the program.
set -euo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

has_fuzzer() {
    "$1" -std=c++20 -fsanitize=fuzzer,address -x c++ - -o "$scratch/target" 2>/dev/null <<<'#include <cstddef>
        extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, std::size_t) { return 0; }'
}

find_clang() {
    local candidate
    for candidate in ${CLANG:-clang++ clang++-20 clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14}; do
        if command -v "$candidate" >/dev/null && has_fuzzer "$candidate"; then
            echo "$candidate"
            return
        fi
    done
}

# Debian keeps clang's runtime, libFuzzer included, in a package of its own whose name has clang's version.
missing_packages() {
    if ! command -v clang++ >/dev/null; then
        echo clang
    else
        echo "libclang-rt-$(clang++ -dumpversion | cut -d. -f1)-dev"
    fi
}

# Two rounds: which runtime is missing shows when clang is there.
for _ in 1 2; do
    [ -n "$(find_clang)" ] && break
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then break; fi
    echo "Installing from the system's packages: $(missing_packages)" >&2
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$(missing_packages)" >/dev/null
done

clang=$(find_clang)
if [ -z "$clang" ]; then
    echo "The fuzzers need a clang with libFuzzer. On Debian or Ubuntu:" >&2
    echo "    sudo apt-get update && sudo apt-get install --install-recommends clang" >&2
    echo "and elsewhere its counterpart. Then run make again." >&2
    exit 1
fi
echo "$clang"
