"""Recipe of a Loader: the script's Dataset and DataLoader in Headrace, with the certainty of each part, and its module.

The trial runs the module, a proof injects it, and `--draft` writes it, with the files that it opens. Text from the
session is a literal there, or inside a comment or docstring that it cannot terminate.
"""

from __future__ import annotations

import ast
import filecmp
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import Environment, PackageLoader, StrictUndefined

from headrace.doctor.explain.look import LeafPath
from headrace.doctor.explain.samples import LeafExplanation
from headrace.doctor.session.after_run import AdoptedPart, LookedImage
from headrace.errors import UsageError

WIDTH = 88
"""Columns of a line: the default of ruff and black."""
MANIFEST = "MANIFEST"
_MARK = {b"headrace": b"samples of a drafted Loader"}
_INDENT = 4
_COUNTED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)
_MARKS = {"check": "check", "python": "check", "differs": "differs", "drawn": "drawn"}
"""Word that begins the comment about a part, by its certainty. Exact parts need none."""
Degree = Literal["exact", "part", "no"]
ROW = "row"
"""Manifest column with the row numbers used from the opened files."""


class UnexplainedError(Exception):
    """Reason in words why the Loader cannot make a leaf."""


@dataclass(frozen=True)
class LoaderRecipe:
    """Arguments of `hr.open` and `hr.Loader` as Python expressions, and the script's batch.

    The values of `fields`, `view`, `augment` and `output` are code with `hr` for headrace. `output` is an expression of
    `batch`, the Loader's own dict.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    output: str = "batch"
    view: str | None = None
    augment: str | None = None
    mixing: str | None = None
    """Mixing of the samples in a batch."""
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Columns of the manifest, by name."""
    opened: tuple[str, ...] = ()
    """Files to open in place of a manifest: tars or tables."""
    keys: tuple[str, ...] = ()
    """Columns to open of them; empty for all."""
    root: str | None = None
    """Archive that contains the manifest's paths; None if they are absolute."""
    tokenizers: Mapping[str, str] = field(default_factory=dict)
    """Tokenizers as JSON, by the constants that name their files."""
    parts: tuple[AdoptedPart, ...] = ()
    covered: tuple[str, ...] = ()
    """Leaves of the script's batch that the Loader makes."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Leaves that stay the script's own Python, with their kinds: `float32[1, 3, 224, 224]`, `str`."""
    degree: Degree = "no"
    reason: str = ""
    """Why the degree is not higher, in one sentence; empty for `exact`."""
    batch_size: int = 1
    shuffle: bool = False
    drop_last: bool = False
    imports: tuple[str, ...] = ()
    """Additional import statements of the module."""
    folders: tuple[str, ...] = ()
    """Folders of the user's modules that are imported."""
    arguments: Mapping[str, int] = field(default_factory=dict)
    """Arguments for live objects of the script: their places in `Look.calls`."""
    script: tuple[str, ...] = ()
    """The script and its arguments; empty if the command names no file."""
    image: LookedImage | None = None

    @property
    def data_arguments(self) -> list[str]:
        """Arguments of the script, or values of its options, below which the data are."""
        values = [column[at] for column in self.columns.values() if len(column) for at in (0, -1)]
        data = [str(one) for one in (*values, *self.opened, self.root) if isinstance(one, str)]
        found = []
        for word in self.script[1:]:
            value = word.partition("=")[2] if word.startswith("-") else word
            place = os.path.abspath(value)
            if value and any(f"{os.path.abspath(one)}/".startswith(f"{place}/") for one in data if "/" in one):
                found.append(value)
        return found

    def tried(self, verified: Mapping[str, str]) -> LoaderRecipe:
        """Return the recipe after a trial compared samples with the inspected ones.

        An array of the script's batch becomes a part to check if it differs by `verified`, unless it is left, and a
        part that is drawn if few samples were compared of what is random.
        """
        if self.degree == "no":
            return self
        found = [
            AdoptedPart(path or "batch", "output", "", "check", f"it differs from the script's: {how}")
            for path, how in verified.items()
            if how.startswith("different") and not any(f"{path}.".startswith(f"{one}.") for one in self.left)
        ]
        drawn = [
            AdoptedPart(path or "batch", "output", "", "drawn", how.partition(": ")[2])
            for path, how in verified.items()
            if how.startswith("drawn") and path in self.covered
        ]
        if not found:
            return replace(self, parts=(*self.parts, *drawn))
        reason = self.reason or f"{found[0].part}: {found[0].note}."
        return replace(self, parts=(*found, *self.parts, *drawn), degree="part", reason=reason)


@dataclass(frozen=True)
class Adoption:
    """Adoption of a Loader by a script: the recipe, and the Python module that implements it.

    `module_text` is None if the degree is `no`. It defines `make_loader(batch_size, *, shuffle, seed, threads,
    device)`, which returns an `hr.Loader`, and `batches(loader)`, which yields its batches in the script's structure.
    """

    recipe: LoaderRecipe
    module_text: str | None
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that it opens besides the script's own, by the constants that name them."""
    explained: Mapping[LeafPath, LeafExplanation] = field(default_factory=dict)
    """Explanations of the inspected samples' leaves."""


# The module, as text.


def module_text(recipe: LoaderRecipe, files: Mapping[str, str]) -> str:
    """Return the module of a recipe, with files by constants. Raises SyntaxError if the recipe is no Python."""
    environment = Environment(
        loader=PackageLoader("headrace.doctor.adoption"),
        autoescape=False,  # Python is written, not HTML
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        braced=_braced,
        comparison=_comparison,
        documented=_documented,
        heading=_heading,
        import_statements=_import_statements,
        laid_out=lambda code, indent, used: laid_out(code, indent=indent, used=used),
        mapping=_mapping,
        python=literal,
        remarks=lambda one, place: list(_remarks(one, place)),
        wrapped=_wrapped,
    )
    text = environment.get_template("module.py.jinja").render(recipe=recipe, files=files)
    ast.parse(text)
    return text


def printable(text: str) -> str:
    """Return a text as part of one line, with unprintable characters escaped as in Python."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _documented(text: str) -> str:
    """Return a text that is safe inside a docstring."""
    lines = (printable(line).replace("\\", "\\\\").replace('"""', "'''") for line in text.split("\n"))
    return "\n".join(line.rstrip() for line in lines).rstrip('"')


def _braced(files: Sequence[str]) -> str | list[str]:
    """Return files for `hr.open`: as one text with braces if their names are numbered consecutively."""
    heads, numbers, tails = (set[str](), list[str](), set[str]())
    for head, number, tail in (match.groups() for match in map(_COUNTED.fullmatch, files) if match):
        heads.add(head)
        numbers.append(number)
        tails.add(tail)
    counts = sorted(map(int, numbers))
    is_run = len(counts) == len(files) > 1 and counts == list(range(counts[0], counts[-1] + 1))
    if not is_run or len(heads) > 1 or len(tails) > 1 or len(set(map(len, numbers))) > 1 or "{" in "".join(files):
        return list(files)
    return f"{heads.pop()}{{{min(numbers)}..{max(numbers)}}}{tails.pop()}"


def _heading(recipe: LoaderRecipe) -> str:
    name = recipe.script[0].replace("\n", " ") if recipe.script else "the script"
    return f"Data of {name} through headrace.Loader: {recipe.degree}."


def _comparison(recipe: LoaderRecipe) -> str:
    return f"Compare with the script: headrace equal {shlex.quote(shlex.join(recipe.script))} DRAFT"


def _import_statements(recipe: LoaderRecipe, kind: str) -> list[str]:
    """Return the sorted imports of the standard library, or all others."""
    own = ["import sys"] if recipe.data_arguments else []
    statements = sorted({*recipe.imports, *own, "import headrace as hr"}, key=lambda one: (one.startswith("from"), one))
    is_standard = [one.split()[1].split(".")[0] in sys.stdlib_module_names for one in statements]
    return [one for one, standard in zip(statements, is_standard, strict=True) if standard == (kind == "standard")]


def _mapping(fields: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name!r}: {code}" for name, code in fields.items()) + "}"


def _remarks(recipe: LoaderRecipe, place: str) -> Iterator[str]:
    for part in recipe.parts:
        if part.place == place and part.certainty in _MARKS:
            text = ": ".join(filter(None, (_MARKS[part.certainty], part.part, part.note)))
            yield from _wrapped(text, "# ", 4).split("\n")


def _wrapped(text: str, prefix: str, indent: int) -> str:
    """Return a text in lines of a module, each after `prefix`."""
    lines = textwrap.wrap(printable(text), WIDTH - indent - len(prefix), break_on_hyphens=False) or [""]
    return "\n".join(f"{prefix}{line}" for line in lines)


# Layout of expressions as by formatters: on one line if they fit, else one element per line.


def laid_out(expression: str, *, indent: int = 0, used: int = 0, width: int = WIDTH) -> str:
    """Return an expression in a layout that formatters keep, given its `indent` and the columns `used` on its line."""
    return _code(ast.parse(expression, mode="eval").body, indent, indent + used, width)


def literal(value: object) -> str:
    """Return a value's repr, with double quotes if this needs no more escapes."""
    return _code(ast.parse(repr(value), mode="eval").body, 0, 0, 10**6)


def _code(node: ast.expr, indent: int, used: int, width: int) -> str:
    line = _one_line(node)
    if used + len(line) <= width:
        return line
    opened = _opened(node)
    if opened is None:
        return line
    head, elements, tail = opened
    inner = indent + _INDENT
    rows = [
        " " * inner + prefix + _code(element, inner, inner + len(prefix) + 1, width) + ",\n"
        for prefix, element in elements
    ]
    return f"{head}\n{''.join(rows)}{' ' * indent}{tail}"


def _opened(node: ast.expr) -> tuple[str, list[tuple[str, ast.expr]], str] | None:
    """Return an expression's opening, its elements with their prefixes, and its closing."""
    if isinstance(node, ast.Call) and (node.args or node.keywords):
        given = [("", each) for each in node.args]
        named = [(f"{each.arg}=" if each.arg else "**", each.value) for each in node.keywords]
        return f"{_one_line(node.func)}(", given + named, ")"
    if isinstance(node, ast.List | ast.Tuple | ast.Set) and node.elts:
        ends = {ast.List: "[]", ast.Tuple: "()", ast.Set: "{}"}[type(node)]
        return ends[0], [("", each) for each in node.elts], ends[1]
    if isinstance(node, ast.Dict) and node.keys:
        pairs = zip(node.keys, node.values, strict=True)
        return "{", [("**" if key is None else f"{_one_line(key)}: ", value) for key, value in pairs], "}"
    return None


def _one_line(node: ast.expr) -> str:
    return ast.unparse(_DoubleQuoted().visit(ast.parse(ast.unparse(node), mode="eval")).body)


class _DoubleQuoted(ast.NodeTransformer):
    """Rewriting of strings with double quotes: as names, which an unparser writes unchanged."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not isinstance(node.value, str):
            return node
        text = repr(node.value)
        return ast.Name(text if '"' in text else f'"{text[1:-1]}"', ast.Load())

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        text = ast.unparse(node)
        return ast.Name(f'f"{text[2:-1]}"', ast.Load()) if text.startswith("f'") and '"' not in text else node


# Files that the module opens.


def write_files(recipe: LoaderRecipe, folder: Path) -> dict[str, str]:
    """Write the files that the module of a recipe opens, and return them by the constants that name them."""
    files = {}
    if recipe.columns or not recipe.opened:
        files[MANIFEST] = str(folder / "manifest.parquet")
        pq.write_table(pa.table(dict(recipe.columns)).replace_schema_metadata(_MARK), files[MANIFEST])
    for name, text in recipe.tokenizers.items():
        path = folder / f"{name.lower()}.json"
        path.write_text(text, encoding="utf-8")
        files[name] = str(path)
    return files


def files_beside(text: str, files: Mapping[str, str], module: Path) -> str:
    """Copy the files of a module next to it, and return its text with the copies' paths.

    For `draft.py` they are `draft.parquet` and `draft.tokenizer_0.json`. Text that opens none of them stays unchanged.
    Raises UsageError if a file is missing, or another file has a copy's name.
    """
    for name, held in files.items():
        if literal(held) not in text:
            continue
        source = Path(held)
        suffix = source.suffix if name == MANIFEST else f".{source.name}"
        copy = module.resolve().with_suffix(suffix)
        if not source.exists():
            raise UsageError(f"expected the samples of the run in {source}, got none: run the command again")
        if copy.exists() and not _may_be_replaced(copy, source):
            raise UsageError(f"expected to write what {module.name} opens to {copy}, got another file there")
        shutil.copyfile(source, copy)
        text = text.replace(literal(held), literal(str(copy)))
    return text


def _may_be_replaced(path: Path, source: Path) -> bool:
    """Return True for a file that an earlier diagnosis wrote."""
    if path.suffix != ".parquet":
        return filecmp.cmp(path, source, shallow=False)
    try:
        return bool((pq.read_schema(path).metadata or {}).get(b"headrace") == _MARK[b"headrace"])
    except (OSError, pa.ArrowException):
        return False
