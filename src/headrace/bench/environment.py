"""What the figures were measured on."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from PIL import features

import headrace as hr
from headrace._core import codec_versions
from headrace.loader import available_cores

OTHERS = ("torch", "pillow", "numpy")


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The machine, the versions and the date of a comparison; what could not be learnt is None."""

    date: str  # ISO 8601, UTC
    cpu: str | None
    cores: int  # that this process may use
    system: str
    python: str
    packages: Mapping[str, str | None]
    codecs: str  # that Headrace decodes with
    pillow_libjpeg_turbo: str | None


def environment() -> Environment:
    """Describe this machine, now."""
    return Environment(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        cpu=cpu_model(Path("/proc/cpuinfo").read_text()),
        cores=available_cores(),
        system=platform.platform(),
        python=platform.python_version(),
        packages={"headrace": hr.__version__, **{name: _version(name) for name in OTHERS}},
        codecs=codec_versions(),
        pillow_libjpeg_turbo=features.version("libjpeg_turbo"),
    )


def cpu_model(cpuinfo: str) -> str | None:
    """Find the processor's name in the text of /proc/cpuinfo; ARM machines have none."""
    names = (line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name"))
    return next(names, None)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
