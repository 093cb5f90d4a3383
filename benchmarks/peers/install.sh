#!/usr/bin/env bash
# Set up the environments of the peers: DIR, and DIR-ffcv, whose numpy is older. Several GB; never in CI.
#     benchmarks/peers/install.sh DIR        Python is taken from $PYTHON, default python3
# What cannot be installed is said and left out; run.py then shows that peer as failed. A second call does only what
# has changed.
set -euo pipefail
[ $# -eq 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
dir=$(realpath -m "$1")
python=$(realpath -s "$(command -v "${PYTHON:-python3}")")
cd "$(dirname "$0")"
root=../..

# SPDL loads FFmpeg's libraries; FFCV is compiled against OpenCV and TurboJPEG.
system=(ffmpeg libopencv-dev libturbojpeg0-dev pkg-config g++)
missing=()
for package in "${system[@]}"; do
    dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
install=(apt-get install -y --no-install-recommends)
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        echo "Installing from the system's packages: ${missing[*]}" >&2
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive "${install[@]}" -qq "${missing[@]}"; } >/dev/null ||
            echo "Could not install them: SPDL and FFCV will not work" >&2
    else
        echo "SPDL and FFCV need: sudo ${install[*]} ${missing[*]}" >&2
    fi
fi

# Runs the rest of the arguments unless they ran to their end when the files, named by the first, were as they are.
once() {
    local stamp=$1 files=$2
    shift 2
    local now
    now=$(eval "find $files -type f ! -name '*.pyc' ! -name '*.so'" | sort | xargs sha256sum | sha256sum)
    [ "$(cat "$stamp" 2>/dev/null)" = "$now" ] && return
    "$@" && echo "$now" >"$stamp"
}

# Each line by itself, under the versions of all, so that one that fails takes no other with it.
requirements() {
    local environment=$1 file=$2 failed=0
    [ -x "$environment/bin/python" ] || "$python" -m venv "$environment"
    while read -r line; do
        "$environment/bin/pip" install --quiet --disable-pip-version-check --constraint "$file" "$line" || {
            echo "Could not install $line into $environment" >&2
            failed=1
        }
    done < <(grep -v '^#' "$file")
    return $failed
}

ffcv() {
    requirements "$dir-ffcv" requirements-ffcv.txt || return
    # Its own requirements would bring another OpenCV and packages that only its examples use.
    "$dir-ffcv/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation --no-deps ffcv==1.0.2
}

mkdir -p "$(dirname "$dir")"
once "$dir/.peers" requirements.txt requirements "$dir" requirements.txt || true
once "$dir/.headrace" "$root/src $root/core $root/CMakeLists.txt $root/pyproject.toml" \
    "$dir/bin/pip" install --quiet --disable-pip-version-check --constraint requirements.txt \
    --config-settings=build-dir=build/peers "$root"
once "$dir-ffcv/.peers" requirements-ffcv.txt ffcv || echo "Could not install FFCV" >&2
