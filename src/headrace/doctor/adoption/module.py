"""The Python module of a recipe, which the trial runs, a proof injects, and `--draft` writes.

Text from the session is a literal there, or inside a comment or docstring that it cannot terminate.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from headrace.doctor.adoption.code_layout import WIDTH, laid_out, literal
from headrace.doctor.adoption.recipe import Argument, LoaderRecipe, RecipePart

_COUNTED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)
_MARKS = {"check": "check", "python": "check", "differs": "differs"}
"""Word that begins the comment about a part, by its certainty. Exact parts need none."""


def module_text(recipe: LoaderRecipe, files: Mapping[str, str]) -> str:
    """Return the module of a recipe, which opens these files by the constants that name them.

    Raises:
        SyntaxError: The recipe contains invalid Python.
    """
    environment = Environment(
        loader=PackageLoader("headrace.doctor.adoption"),
        autoescape=False,  # Python is written, not HTML
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        braced=_braced,
        documented=_documented,
        heading=_heading,
        import_statements=_import_statements,
        laid_out=lambda code, indent, used: laid_out(code, indent=indent, used=used),
        mapping=_mapping,
        python=literal,
        remarks=lambda one, argument: list(_remarks(one, argument)),
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


def _import_statements(recipe: LoaderRecipe, kind: str) -> list[str]:
    """Return the sorted imports of the standard library, or all others."""
    own = ["import sys"] if recipe.data_arguments else []
    statements = sorted({*recipe.imports, *own, "import headrace as hr"}, key=lambda one: (one.startswith("from"), one))
    is_standard = [one.split()[1].split(".")[0] in sys.stdlib_module_names for one in statements]
    return [one for one, standard in zip(statements, is_standard, strict=True) if standard == (kind == "standard")]


def _mapping(fields: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name!r}: {code}" for name, code in fields.items()) + "}"


def _remarks(recipe: LoaderRecipe, argument: Argument) -> Iterator[str]:
    for part in recipe.parts:
        if part.argument == argument and part.certainty in _MARKS:
            yield from _wrapped(_remark(part), "# ", 4).split("\n")


def _remark(part: RecipePart) -> str:
    note = f": {part.note}" if part.note else ""
    return f"{_MARKS[part.certainty]}: {part.part}{note}"


def _wrapped(text: str, prefix: str, indent: int) -> str:
    """Return a text in lines of a module, each after `prefix`."""
    lines = textwrap.wrap(printable(text), WIDTH - indent - len(prefix), break_on_hyphens=False) or [""]
    return "\n".join(f"{prefix}{line}" for line in lines)
