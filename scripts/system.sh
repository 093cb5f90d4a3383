#!/usr/bin/env bash
# Print a Python that can build Headrace, once the system has all that the build needs.
#
# Needed: Python 3.11 or newer with venv and headers, a C++20 compiler, and the headers of libjpeg-turbo (2.0 or
# newer) and libdeflate. As root on Debian or Ubuntu what is missing is installed; otherwise the
# command that installs it is printed and the exit code is 1. PYTHON= and CXX= choose the programs.
set -euo pipefail

cxx=${CXX:-c++}

# Python: the first candidate that is new enough, else nothing.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

# The name under which apt has a Python that is new enough: Ubuntu 22.04 keeps 3.11 beside its 3.10.
apt_python() {
    if python3 -c 'import sys; sys.exit(sys.version_info >= (3, 11))' 2>/dev/null; then
        echo python3.11
    else
        echo python3
    fi
}

compiles() { "$cxx" -std=c++20 -fsyntax-only -x c++ - 2>/dev/null; }

missing_packages() {
    local python header
    python=$(find_python)
    if [ -z "$python" ]; then
        python=$(apt_python)
        echo "$python" "$python-venv" "$python-dev"
    else
        "$python" -c 'import ensurepip, venv' 2>/dev/null || echo "${python##*/}-venv"
        header=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
        [ -f "$header" ] || echo "${python##*/}-dev"
    fi
    compiles <<<'#include <concepts>
                 #include <span>' || echo g++
    compiles <<<'#include <cstdio>
                 #include <jpeglib.h>
                 #if LIBJPEG_TURBO_VERSION_NUMBER < 2000000
                 #error too old
                 #endif' || echo libjpeg-dev
    compiles <<<'#include <libdeflate.h>' || echo libdeflate-dev
}

# Two rounds: on a bare Ubuntu 22.04 only the first shows that its python3 is too old.
for _ in 1 2; do
    mapfile -t missing < <(missing_packages | tr ' ' '\n')
    [ ${#missing[@]} -eq 0 ] && break
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then break; fi
    echo "Installing from the system's packages: ${missing[*]}" >&2
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
done

mapfile -t missing < <(missing_packages | tr ' ' '\n')
if [ ${#missing[@]} -gt 0 ]; then
    echo "Headrace's build needs packages that are not here. On Debian or Ubuntu:" >&2
    echo "    sudo apt-get update && sudo apt-get install ${missing[*]}" >&2
    echo "and elsewhere their counterparts. Then run make again." >&2
    exit 1
fi
find_python
