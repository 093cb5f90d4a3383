#!/usr/bin/env bash
# Builds the codecs that a wheel carries, of fixed versions, as static libraries below PREFIX.
#     scripts/build_codecs.sh PREFIX
#
# Headrace links them when it is built with HEADRACE_CODECS=PREFIX in the environment. Sources come from the projects'
# own releases; what is fetched must have the checksum below. With CODEC_SOURCES=folder the archives are taken from
# there, NAME-VERSION.tar.gz each. Needed: cmake, a C compiler, curl, and on x86-64 nasm, for libjpeg-turbo without its
# SIMD code takes three times as long.
set -euo pipefail

libjpeg_turbo=3.1.3
libjpeg_turbo_sha256=3a13a5ba767dc8264bc40b185e41368a80d5d5f945944d1dbaa4b2fb0099f4e5
libjpeg_turbo_url=https://github.com/libjpeg-turbo/libjpeg-turbo/archive/refs/tags/$libjpeg_turbo.tar.gz

libdeflate=1.23
libdeflate_sha256=1ab18349b9fb0ce8a0ca4116bded725be7dcbfa709e19f6f983d99df1fb8b25f
libdeflate_url=https://github.com/ebiggers/libdeflate/archive/refs/tags/v$libdeflate.tar.gz

prefix=$(mkdir -p "${1:?expected a folder to install to}" && cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# NAME-VERSION SHA256 URL: the sources, unpacked to $work/NAME-VERSION.
fetch() {
    local archive=${CODEC_SOURCES:-$work}/$1.tar.gz
    if [ -z "${CODEC_SOURCES:-}" ]; then
        curl --fail --silent --show-error --location --retry 3 --output "$archive" "$3" || {
            echo "Cannot fetch $3. Put it into a folder as $1.tar.gz and set CODEC_SOURCES to that folder." >&2
            return 1
        }
    fi
    echo "$2  $archive" | sha256sum --check --quiet
    tar -xzf "$archive" -C "$work"
}

# NAME-VERSION CMAKE-OPTIONS...: hidden symbols, so that the module that links them shows none to other libraries.
build() {
    local name=$1
    cmake -S "$work/$name" -B "$work/build-$name" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
        -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_C_VISIBILITY_PRESET=hidden "${@:2}"
    cmake --build "$work/build-$name" --parallel "$(nproc)"
    cmake --install "$work/build-$name"
}

# NAME-VERSION FILES...: what a binary that carries the library has to show.
keep_licences() {
    mkdir -p "$prefix/licences/$1"
    (cd "$work/$1" && cp "${@:2}" "$prefix/licences/$1/")
}

fetch "libjpeg-turbo-$libjpeg_turbo" "$libjpeg_turbo_sha256" "$libjpeg_turbo_url"
build "libjpeg-turbo-$libjpeg_turbo" -DENABLE_SHARED=OFF -DWITH_TURBOJPEG=OFF -DWITH_TOOLS=OFF -DWITH_TESTS=OFF \
    -DREQUIRE_SIMD=ON
keep_licences "libjpeg-turbo-$libjpeg_turbo" LICENSE.md README.ijg

fetch "libdeflate-$libdeflate" "$libdeflate_sha256" "$libdeflate_url"
build "libdeflate-$libdeflate" -DLIBDEFLATE_BUILD_SHARED_LIB=OFF -DLIBDEFLATE_BUILD_GZIP=OFF
keep_licences "libdeflate-$libdeflate" COPYING
