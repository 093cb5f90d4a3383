"""Wheels: what docs/wheels.md says of them is what they are built from. scripts/test_wheel.sh runs the tests on one."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from headrace import _core

ROOT = Path(__file__).parents[1]
CODECS = ROOT / "scripts" / "build_codecs.sh"
PAGE = (ROOT / "docs" / "wheels.md").read_text()


def pinned() -> dict[str, str]:
    """The codecs that a wheel carries, and their versions."""
    found = re.findall(r"^(\w+)=([\d.]+)$", CODECS.read_text(), re.MULTILINE)
    return {name.replace("_", "-"): version for name, version in found}


def table(heading: str) -> list[list[str]]:
    """The cells of the table under a heading of the page, without its own head."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_page_names_the_codecs_that_are_pinned() -> None:
    assert {row[0]: row[1] for row in table("The codecs")} == pinned()
    assert list(pinned()) == ["libjpeg-turbo", "libdeflate"]


def test_the_page_names_what_cibuildwheel_builds() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    pythons = [build.removesuffix("-*") for build in settings["build"]]
    assert pythons == ["cp311", "cp312", "cp313", "cp314", "cp314t"]
    built = list(itertools.product(pythons, settings["linux"]["archs"]))
    assert [(row[0], row[1]) for row in table("Which there are")] == built
    assert settings["skip"] == ["*-musllinux_*"]
    assert {settings["linux"][f"manylinux-{arch}-image"] for _, arch in built} == {"manylinux_2_28"}
    assert "manylinux_2_28" in PAGE


def test_cibuildwheel_links_the_codecs_that_it_has_built() -> None:
    linux = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]["linux"]
    assert linux["before-all"].endswith(f"scripts/build_codecs.sh {linux['environment']['HEADRACE_CODECS']}")


def test_the_core_reports_its_codecs() -> None:
    assert re.fullmatch(r"libjpeg-turbo [\d.]+, libdeflate [\d.]+", _core.codec_versions())


def test_a_wheel_runs_the_codecs_that_it_carries_the_licences_of() -> None:
    installed = importlib.metadata.Distribution.discover(name="headrace")
    files = [file for distribution in installed for file in distribution.files or []]
    carried = {file.parts[2] for file in files if len(file.parts) > 3 and file.parts[1] == "licenses"}
    if not carried:
        pytest.skip("not a wheel of its own codecs: the system's are linked")
    assert carried == {f"{name}-{version}" for name, version in pinned().items()}
    assert _core.codec_versions() == ", ".join(f"{name} {version}" for name, version in pinned().items())


def test_sources_of_codecs_must_have_their_checksums(tmp_path: Path) -> None:
    for name, version in pinned().items():
        (tmp_path / f"{name}-{version}.tar.gz").write_bytes(b"something else")
    environment = os.environ | {"CODEC_SOURCES": str(tmp_path)}
    built = subprocess.run([CODECS, tmp_path / "codecs"], env=environment, capture_output=True, text=True)
    assert built.returncode != 0
    assert f"libjpeg-turbo-{pinned()['libjpeg-turbo']}.tar.gz: FAILED" in built.stdout
    assert not any((tmp_path / "codecs").iterdir())
