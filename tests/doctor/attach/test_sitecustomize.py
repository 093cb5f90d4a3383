"""What a Python that the doctor observes looks like to the script in it: as ever."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from attach_runs import begin_session, evidence, records, stub_torch

from headrace.doctor.attach.command import FOLDER_VARIABLE, SITE_FOLDER, probe_environment

SHOW = "import sys; print(sys.path, sys.argv, 'sitecustomize' in sys.modules, getattr(sys, 'other', None))"

OTHERS = {
    "none": None,
    "sets": "import sys; sys.other = __file__; sys.path.append('/appended')",
    "raises": "raise ValueError('broken \\u20ac')",
    "needs": "import nothing_of_that_name",
    "imports itself": "import sitecustomize, sys; sys.other = sitecustomize.__file__",
}


def run(*arguments: str, python: str = sys.executable, **variables: str) -> tuple[int, str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([python, *arguments], capture_output=True, text=True, env=inherited | variables)
    return done.returncode, done.stdout, done.stderr


def observed(folder: Path, *arguments: str, python: str = sys.executable, **variables: str) -> tuple[int, str, str]:
    begin_session(folder)
    added = probe_environment(folder, variables)
    return run(*arguments, python=python, **added)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("other", "options"),
    [*((name, []) for name in OTHERS), ("sets", ["-s"]), ("sets", ["-P"]), ("sets", ["-X", "utf8"])],
)
def test_another_sitecustomize_runs_as_it_would(other, options, tmp_path):
    """On PYTHONPATH: status, standard output and error are the same, byte for byte."""
    variables = {"PYTHONPATH": f"{tmp_path}/first:{tmp_path}/second:"}
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    if OTHERS[other] is not None:
        (tmp_path / "second" / "sitecustomize.py").write_text(OTHERS[other])
    assert observed(tmp_path, *options, "-c", SHOW, "x", **variables) == run(*options, "-c", SHOW, "x", **variables)


def test_one_that_ends_python_ends_it(tmp_path):
    """Python then shows a stack in which there is one frame more; the rest is the same."""
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit(7)")
    with_us = observed(tmp_path, "-c", SHOW, PYTHONPATH=str(tmp_path))
    without = run("-c", SHOW, PYTHONPATH=str(tmp_path))
    assert with_us[:2] == without[:2]
    assert with_us[2].splitlines()[-1] == without[2].splitlines()[-1]


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    """Without pip, which takes seconds, and with a sitecustomize and a usercustomize in its site-packages."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "sitecustomize.py").write_text(OTHERS["sets"])
    (packages / "usercustomize.py").write_text("import sys; sys.stdout.write('user\\n')")
    return str(folder / "bin" / "python")


def test_one_in_a_virtual_environment_runs_too(venv, tmp_path):
    """Where the system's own does not come before it, as on Debian."""
    expected = run("-c", SHOW, python=venv)
    if Path(run("-c", "import sitecustomize; print(sitecustomize.__file__)", python=venv)[1]).parts[:2] == ("/", "usr"):
        pytest.skip("this Python brings one of its own")
    assert "/appended" in expected[1]
    assert observed(tmp_path, "-c", SHOW, python=venv) == expected


def test_its_own_traceback_shows_where_asked_for(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(OTHERS["raises"])
    status, _, error = observed(tmp_path, "-v", "-c", "pass", PYTHONPATH=str(tmp_path))
    assert status == 0
    assert "ValueError: broken €" in error


@pytest.mark.parametrize("program", [["-c", SHOW], ["-m", "shows"], ["shows.py"]], ids=["-c", "-m", "file"])
def test_paths_and_arguments_are_as_without(program, tmp_path, monkeypatch):
    (tmp_path / "shows.py").write_text(SHOW)
    monkeypatch.chdir(tmp_path)
    assert observed(tmp_path, *program, "--lr", "1") == run(*program, "--lr", "1")


def test_nothing_is_written_for_a_python_that_has_no_torch(tmp_path):
    assert observed(tmp_path, "-c", "print('fine')") == (0, "fine\n", "")
    assert evidence(tmp_path) == {}
    assert [path.name for path in (tmp_path / "evidence").iterdir()] == []


def test_a_python_that_fails_without_torch_leaves_why(tmp_path):
    assert observed(tmp_path, "-c", "import nothing_of_that_name")[0] == 1
    ((_, _, text),) = records(tmp_path, "error")
    assert "nothing_of_that_name" in text.splitlines()[-1]


def test_nothing_happens_without_a_session(tmp_path):
    status, out, error = run("-c", "import sys; print('_headrace_probe' in sys.modules)", PYTHONPATH=str(SITE_FOLDER))
    assert (status, out, error) == (0, "False\n", "")


def test_a_session_that_is_gone_is_passed_over(tmp_path):
    variables = probe_environment(tmp_path / "gone", {})
    source = "import sys; sys.path.insert(0, sys.argv[1]); import torch"
    shown = source + "; print([name for name in sys.modules if name.startswith('_headrace_probe')])"
    assert run("-c", shown, str(stub_torch(tmp_path)), **variables) == (0, "[]\n", "")


def test_a_probe_that_fails_leaves_a_note(tmp_path):
    begin_session(tmp_path)
    (tmp_path / "settings.json").write_text("{")
    source = "import os, sys; sys.path.insert(0, sys.argv[1]); import torch"
    shown = source + "; print(os.getpid(), [name for name in sys.modules if name.startswith('_headrace_probe')])"
    status, out, error = run("-c", shown, str(stub_torch(tmp_path)), **probe_environment(tmp_path, {}))
    pid, modules = out.split(maxsplit=1)
    assert (status, modules, error) == (0, "[]\n", "")
    assert "JSONDecodeError" in (tmp_path / "evidence" / f"failed-{pid}.txt").read_text().splitlines()[-1]


def test_any_python_can_read_it():
    text = (SITE_FOLDER / "sitecustomize.py").read_text(encoding="ascii")
    ast.parse(text, feature_version=(3, 4))
    assert "f'" not in text
    assert 'f"' not in text


def test_a_python_that_is_too_old_runs_no_probe(tmp_path):
    """As such a one runs it: its version is all that is looked at."""
    source = f"""
import sys
sys.version_info = (3, 8, 18, "final", 0)
sys.path.insert(0, {str(SITE_FOLDER)!r})
try:
    import sitecustomize
except ImportError:  # Debian's Python brings one of its own
    pass
print("_headrace_probe" in sys.modules, sys.path[0])
"""
    begin_session(tmp_path)
    status, out, error = run("-S", "-c", source, **{FOLDER_VARIABLE: str(tmp_path)})
    assert (status, out, error) == (0, "False \n", "")


def test_the_environment_keeps_what_was_on_the_path(tmp_path):
    def path(before: dict[str, str]) -> str:
        return probe_environment(tmp_path, before)["PYTHONPATH"]

    assert path({}) == path({"PYTHONPATH": ""}) == str(SITE_FOLDER)
    assert path({"PYTHONPATH": "/a::/b:"}) == f"{SITE_FOLDER}:/a::/b:"
    told = {"A": "b", FOLDER_VARIABLE: f"{os.getcwd()}/relative", "PYTHONPATH": str(SITE_FOLDER)}
    assert probe_environment(Path("relative"), {"A": "b"}) == told


def test_a_module_named_as_a_users_own_is_not_in_its_way(tmp_path):
    """What the probe imports is the standard library's; what a script imports beside it is its own."""
    (tmp_path / "probe.py").write_text("name = 'mine'")
    (tmp_path / "settings.py").write_text("name = 'mine'")
    (tmp_path / "train.py").write_text("import probe, settings; print(probe.name, settings.name)")
    assert observed(tmp_path, str(tmp_path / "train.py")) == (0, "mine mine\n", "")


def test_the_probe_runs_in_the_oldest_python_it_is_for(tmp_path):
    """By its syntax; what it imports there, a run of the suite under that Python tells."""
    for path in (SITE_FOLDER.parents[1] / "probe").rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 9))


def test_a_python_that_imports_nothing_to_observe_loads_next_to_nothing_of_the_probe(tmp_path):
    says = (
        "import sys; print(*sorted(name for name in sys.modules if name.startswith('_headrace') or name == 'typing'))"
    )
    status, said = observed(tmp_path, "-c", says)[:2]
    assert (status, said.split()) == (0, ["_headrace_probe", "_headrace_probe.imports"])
