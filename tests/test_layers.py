"""What import-linter cannot see: it takes an import of the native module for one of the package's root."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

import headrace

ROOT = Path(headrace.__file__).parent
USERS = {
    ROOT / "tools" / "bench",
    ROOT / "tools" / "command_line.py",
    ROOT / "doctor" / "adoption",
}
"""What stands above the public names, and uses them as people do."""
INJECTED = ROOT / "doctor" / "probe" / "remedies"
"""Puts the public names into a user's process, if headrace is installed there: by imports in functions alone."""
INNER = sorted(
    path
    for path in ROOT.rglob("*.py")
    if path != ROOT / "__init__.py" and not (USERS | {INJECTED}) & {path, *path.parents}
)


def taken_from_the_root(source: str, depth: int) -> Iterator[str]:
    """Names imported from the package's root, by a module `depth` folders below it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name == "headrace")
        elif isinstance(node, ast.ImportFrom) and (
            (node.level == 0 and node.module == "headrace") or (node.level == depth + 1 and node.module is None)
        ):
            yield from (alias.name for alias in node.names)


@pytest.mark.long
def test_layers_take_only_the_native_module_from_the_root() -> None:
    for path in INNER:
        place = path.relative_to(ROOT)
        taken = set(taken_from_the_root(path.read_text(), len(place.parts) - 1))
        assert taken <= {"_core"}, f"{place} takes {sorted(taken)} from the package's root"


@pytest.mark.parametrize("path", sorted(INJECTED.glob("*.py")), ids=lambda path: path.name)
def test_what_is_injected_needs_no_headrace_to_be_imported(path: Path) -> None:
    at_once = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not set(taken_from_the_root(ast.unparse(at_once), 3))


@pytest.mark.parametrize(
    ("source", "depth"),
    [
        ("import headrace", 0),
        ("from headrace import Loader", 1),
        ("from .. import Loader", 1),
        ("from . import Loader", 0),
    ],
)
def test_sees_every_way_of_taking_more(source: str, depth: int) -> None:
    assert set(taken_from_the_root(source, depth)) & {"headrace", "Loader"}


def test_leaves_siblings_be() -> None:
    assert list(taken_from_the_root("from . import sidecar\nfrom ..errors import UsageError", 1)) == []


def circle_in(imports: dict[str, set[str]]) -> list[str]:
    """A circle of modules, each of which imports the next one; none where there is no circle.

    Imports in functions count. A module may take from a package above it, which Python has imported before the module.
    """
    down = {
        module: {one for one in imported if not f"{module}.".startswith(f"{one}.")}
        for module, imported in imports.items()
    }
    try:
        graphlib.TopologicalSorter(down).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_circle_between_files() -> None:
    graph = grimp.build_graph("headrace", cache_dir=None)  # imports for types alone count
    # An import of the native module counts as one of the root, which imports everything.
    modules = graph.modules - {"headrace"}
    assert len(modules) > 200
    assert circle_in({one: graph.find_modules_directly_imported_by(one) - {"headrace"} for one in modules}) == []


def test_sees_a_circle() -> None:
    assert set(circle_in({"a.b": {"a.c"}, "a.c": {"a.d"}, "a.d": {"a.b"}})) == {"a.b", "a.c", "a.d"}
    assert circle_in({"a": {"a.b"}, "a.b": {"a", "a.c"}, "a.c": set()}) == []
