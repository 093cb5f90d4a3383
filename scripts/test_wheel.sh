#!/usr/bin/env bash
# Runs the tests against an installed wheel, as on a machine that has neither a compiler nor the codecs.
#     PYTHON=python3.12 scripts/test_wheel.sh WHEEL [pytest arguments]
#
# The wheel goes into a fresh environment in a folder of its own, where the tests, and the docs, benchmarks and examples that they
# read, lie beside it; the package's sources do not. Compilers and the system's libjpeg and libdeflate are covered by
# empty files for this run alone, which takes a mount namespace (unshare, of util-linux), and so is Chromium's driver,
# since Debian's Chromium links that libjpeg. TORCH=no leaves torch out: then tests/doctor is left out, and the others
# that need it, or another package that is there for tests only, are skipped and counted.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
wheel=$(realpath "${1:?expected a wheel}")
python=${PYTHON:-python3}
shift
[ $# -gt 0 ] || set -- -m "not long and not alone" --numprocesses auto --maxprocesses 4 --dist loadfile
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp -r ./*.md tests docs benchmarks examples scripts pyproject.toml "$work"
"$python" -m venv "$work/venv"
install=("$work/venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all:)
"${install[@]}" "$wheel"
export PIP_CONSTRAINT=$root/constraints.txt
if [ "${TORCH:-yes}" = no ]; then
    "${install[@]}" hypothesis pytest pytest-timeout pytest-xdist scipy
    set -- -p scripts.lacking_packages -o verbosity_assertions=2 --ignore=tests/doctor "$@"
else
    "${install[@]}" torch
    # shellcheck disable=SC2046  # one requirement a word
    "${install[@]}" $("$work/venv/bin/python" scripts/requirements.py dev)
fi

mapfile -t covered < <({
    ldconfig -p | awk '/lib(jpeg|turbojpeg|deflate)\.so/ { print $NF }'
    for tool in cc c++ gcc g++ clang clang++ cmake ninja make nasm chromedriver; do command -v "$tool" || true; done
} | xargs --no-run-if-empty realpath | sort -u)

cd "$work"
own=()
[ "$(id -u)" -eq 0 ] || own=(--map-root-user)
# shellcheck disable=SC2016  # expanded by the shell inside
unshare --mount "${own[@]}" env --ignore-environment HOME="$work" LANG=C.UTF-8 PATH="$work/venv/bin:/usr/bin:/bin" \
    bash -euo pipefail -c '
        covered=$1 && shift
        for file in "${@:1:covered}"; do mount --bind /dev/null "$file"; done
        shift "$covered"
        python -c "import headrace._core as c; print(c.__file__, c.codec_versions(), c.levels(), sep=chr(10))"
        exec python -m pytest -p no:cacheprovider "$@"
    ' bash "${#covered[@]}" "${covered[@]}" "$@"
