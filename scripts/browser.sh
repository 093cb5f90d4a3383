#!/usr/bin/env bash
# Have Chromium and its driver for the tests of the HTML report, where the system's packages offer them.
#
# As root on Debian they are installed; otherwise the command that installs them is printed, and the tests that need a
# browser are skipped, which pytest says at its end.
set -euo pipefail

command -v chromium >/dev/null && command -v chromedriver >/dev/null && exit 0
install=(apt-get install -y --no-install-recommends chromium chromium-driver)
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    echo "Installing from the system's packages: chromium chromium-driver" >&2
    apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive "${install[@]}" >/dev/null && exit 0
fi
echo "No Chromium: the HTML report's tests in a browser are skipped. To have it: ${install[*]}" >&2
