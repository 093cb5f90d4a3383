"""Headrace's Loader taken into scripts: one patch, of the new module and the script, that applies and is clean."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from file_trees import git_apply, patch
from recorded_scripts import FOLDER, SCRIPTS, recorded

from headrace.doctor.adoption import LoaderRecipe, module_text
from headrace.doctor.edits import LoaderScript, ScriptSource, ScriptSources, WantedEdit
from headrace.doctor.measure import main_view_of

MODULE = "import headrace as hr\n"
PATH = "/home/ada/train.py"
LOOP = """from torch.utils.data import DataLoader, Subset
from data import photos
loader = DataLoader(photos, batch_size=4)
for batch in loader:
    train(batch)
"""
DATALOADER = {"num_workers": 0, "batch_size": 4, "pin_memory": False, "file": PATH, "line": 4}
ADOPTING = WantedEdit(adopts=MODULE)
GIVES = {
    "captions_csv": "loader = headrace_loader.make_dataloader(batch_size=args.batch_size)",
    "folder_albumentations": "loader = headrace_loader.make_dataloader(batch_size=args.batch_size)",
    "folder_timm": "data_loader_train = headrace_loader.make_dataloader(batch_size=args.batch_size)",
    "folder_v1": "train_loader = headrace_loader.make_dataloader(batch_size=args.batch_size)",
    "folder_v2": "loader = headrace_loader.make_dataloader(batch_size=args.batch_size)",
    "hf_images": "loader = headrace_loader.make_dataloader(batch_size=args.batch_size)",
}


def script(text: str, path: str = PATH, files: dict[str, str] | None = None, **changes: object) -> LoaderScript:
    known = {path: text} | (files or {})
    sources = [ScriptSource(one, source) for one, source in known.items() if not one.endswith("headrace_loader.py")]
    return LoaderScript(sources, DATALOADER | changes, ("python", "train.py"), ScriptSources(known.get, "/home/ada"))


def after(text: str, **facts: object) -> str | None:
    found = script(text, **facts).changed(ADOPTING)
    return None if found is None else found[0].after


_FIELDS = {"image": 'hr.Image(source="image__path", dtype="float32")', "label": "hr.Label()"}
_VIEW = {"view": "hr.RandomResizedCrop(224)", "output": "[batch['image'], batch['label']]"}
RECIPE = LoaderRecipe(fields=_FIELDS, **_VIEW, script=("train.py",), degree="exact")


def adopting_diff(name: str, files: Mapping[str, str] | None = None) -> str:
    """The patch of a recorded script."""
    session = recorded(name)
    view = main_view_of(session)
    assert view is not None
    path = f"{SCRIPTS}/{name}.py"
    text = (FOLDER / f"{name}.py").read_text()
    sources = ScriptSources({path: text}.get, SCRIPTS)
    module = module_text(RECIPE, files or {"MANIFEST": "samples.parquet"})
    facts = next(one.facts for one in view.trainer.loaders if "described" in one.facts)
    found = LoaderScript([ScriptSource(path, text)], facts, ("python", path), sources)
    changed = found.changed(WantedEdit(adopts=module))
    assert changed is not None
    return "".join(one.diff(SCRIPTS) for one in changed)


@pytest.mark.parametrize("name", GIVES)
@pytest.mark.one_in(4)
def test_a_patch_holds_the_script_and_the_module(name: str, tmp_path: Path) -> None:
    diff = adopting_diff(name)

    modules = []
    for folder, apply in ((tmp_path / "git", git_apply), (tmp_path / "patch", patch)):
        folder.mkdir()
        shutil.copy(FOLDER / f"{name}.py", folder)
        (folder / "changes.patch").write_text(diff)
        apply(folder, "changes.patch")
        assert GIVES[name] in [line.strip() for line in (folder / f"{name}.py").read_text().splitlines()]
        modules.append((folder / "headrace_loader.py").read_text())
    assert modules[0] == modules[1]
    names: dict[str, object] = {}
    exec(compile(modules[0], "headrace_loader", "exec"), names)
    assert callable(names["make_dataloader"])


def test_the_loader_of_another_library_is_left_alone() -> None:
    assert after((FOLDER / "timm_loader.py").read_text()) is None
    assert after((FOLDER / "shards_webdataset.py").read_text()) is None


def test_a_module_that_is_there_is_not_written_over() -> None:
    place = "/home/ada/headrace_loader.py"
    written = script(LOOP).changed(ADOPTING)
    assert [one.path for one in written or []] == [PATH, place]
    assert [one.path for one in script(LOOP, files={place: written[1].after}).changed(ADOPTING)] == [PATH]
    assert script(LOOP, files={place: "mine = 1\n"}).changed(ADOPTING) is None


def test_the_module_lies_where_the_script_imports_from() -> None:
    elsewhere = "/home/ada/mine/data.py"
    assert script(LOOP, elsewhere, file=elsewhere).changed(ADOPTING) is None
    assert script("import train\n" + LOOP, "/home/ada/data.py", file="/home/ada/data.py", line=5).changed(ADOPTING)


def test_arguments_of_the_dataloader_go_with_it() -> None:
    both = ADOPTING.with_(WantedEdit({"num_workers": "4", "pin_memory": "True"}))
    assert script(LOOP).changed(both) == script(LOOP).changed(ADOPTING)
