"""Files that a drafted module opens: a table of the samples' paths and values, and tokenizers."""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.doctor.adoption.code_layout import literal
from headrace.doctor.adoption.recipe import LoaderRecipe
from headrace.errors import UsageError

MANIFEST = "MANIFEST"
_MARK = {b"headrace": b"samples of a drafted Loader"}


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
