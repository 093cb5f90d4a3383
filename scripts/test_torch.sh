#!/usr/bin/env bash
# Runs the doctor's tests of its hooks, and those of the drop-ins, against another torch than constraints.txt has.
#     scripts/test_torch.sh VERSION [pytest arguments]          such as 2.15.0, or 2.5.1
#     SITE=folder scripts/test_torch.sh own [pytest arguments]  the torch of an environment that is there already
#
# The hooks bind to parts of torch that are nobody's promise: they are renamed between releases, and a hook that does
# not fit sees nothing. Everything else comes from .venv (make build), which the environment made here, in
# .cache/torch-VERSION, has behind its own torch and torchvision.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?expected a version of torch, such as 2.15.0}
shift
[ -x .venv/bin/python ] || { echo "expected an environment in .venv; make build makes it" >&2; exit 1; }
here=.cache/torch-$version
behind=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
if [ ! -e "$here/ready" ]; then
    .venv/bin/python -m venv --clear --without-pip "$here"
    site=$("$here/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    if [ -n "${SITE:-}" ]; then
        echo "$SITE" >"$site/a_torch.pth"
    else
        .venv/bin/python -m pip --python "$here/bin/python" install --quiet --disable-pip-version-check \
            "torch==$version" torchvision
    fi
    # Read after the others, so that what .venv has comes last; site.addsitedir also reads its .pth files.
    echo "import site; site.addsitedir('$behind')" >"$site/z_behind.pth"
    touch "$here/ready"
fi
"$here/bin/python" -c 'import torch; print("torch", torch.__version__, torch.__file__)'
[ $# -gt 0 ] || set -- -m "not long and not alone" --numprocesses auto --maxprocesses 4 --dist loadfile \
    tests/doctor/probe tests/doctor/test_doctor_truth*.py tests/doctor/test_doctor_faults.py \
    tests/doctor/test_doctor_windows_runs.py tests/dropins/test_thread_loader*.py tests/dropins/test_as_dataloader.py \
    tests/device/test_device_prefetcher.py tests/dropins/test_drop_ins_together.py \
    tests/dropins/test_samplers*.py tests/dropins/test_bucket_sampler.py
PATH=$PWD/$here/bin:$PATH exec "$here/bin/python" -m pytest -p no:cacheprovider "$@"
