"""The files of a drafted module: copied beside it, and never over a file of somebody's."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.doctor.adoption import LoaderRecipe, files_beside, module_text
from headrace.doctor.adoption.module import write_files
from headrace.errors import UsageError

RECIPE = LoaderRecipe(
    columns={"image__path": ["a.jpg", "b.jpg"], "label": [3, None]}, tokenizers={"TOKENIZER_0": '{"model": {}}'}
)


def drafted(folder: Path) -> tuple[str, dict[str, str]]:
    run = folder / "run"
    run.mkdir(exist_ok=True)
    files = write_files(RECIPE, run)
    return module_text(RECIPE, files), files


def test_a_module_opens_the_copies_beside_it(tmp_path: Path) -> None:
    text, files = drafted(tmp_path)
    for _ in range(2):
        beside = files_beside(text, files, tmp_path / "draft.py")
        assert f'MANIFEST = "{tmp_path / "draft.parquet"}"' in beside
        assert f'TOKENIZER_0 = "{tmp_path / "draft.tokenizer_0.json"}"' in beside
    assert pq.read_table(tmp_path / "draft.parquet").to_pydict() == dict(RECIPE.columns)
    assert (tmp_path / "draft.tokenizer_0.json").read_text() == RECIPE.tokenizers["TOKENIZER_0"]


@pytest.mark.parametrize("name", ["draft.parquet", "draft.tokenizer_0.json"])
def test_another_file_of_that_name_stays(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(UsageError, match=name):
        files_beside(*drafted(tmp_path), tmp_path / "draft.py")
    assert (tmp_path / name).read_bytes() == b"mine"


def test_files_that_are_gone_are_said(tmp_path: Path) -> None:
    text, files = drafted(tmp_path)
    Path(files["MANIFEST"]).unlink()
    with pytest.raises(UsageError, match="run the command again"):
        files_beside(text, files, tmp_path / "draft.py")
