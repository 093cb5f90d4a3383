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
FUNCTION = "def epoch(model, batches):\n    return "
DATALOADER = {"num_workers": 0, "batch_size": 4, "pin_memory": False, "file": PATH, "line": 4}
ADOPTING = WantedEdit(adopts=MODULE)
GIVES = {
    "captions_csv": "loader = headrace_loader.make_dataloader(batch_size=args.batch_size)",
    "folder_albumentations": "loader = headrace_loader.make_dataloader(batch_size=args.batch_size)",
    "folder_timm": "data_loader_train = headrace_loader.make_dataloader(batch_size=args.batch_size)",
    "folder_v1": "train_loader = headrace_loader.make_dataloader(batch_size=args.batch_size)",
    "folder_v2": "loader = headrace_loader.make_dataloader(batch_size=args.batch_size)",
    "hf_images": "loader = headrace_loader.make_dataloader(batch_size=args.batch_size)",
    "timm_loader": "loader_train.loader = headrace_loader.make_dataloader(batch_size=args.batch_size)",
    "shards_webdataset": "return headrace_loader.make_dataloader(batch_size=args.batch_size)",
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
@pytest.mark.one_in(6)
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


@pytest.mark.parametrize(
    ("before", "use", "is_certain"),
    [
        ("train(batch)", "train(batch, len(loader))", True),
        ("train(batch)", "train(batch, len(loader.dataset), loader.batch_size)", True),
        ("train(batch)", "train(batch, loader.dataset.classes)", False),
        ("train(batch)", "loader.sampler.set_epoch(1)", True),
        ("train(batch)", "loader.sampler.weights", False),
        ("for batch in loader:", "import tqdm\nfor batch in tqdm.tqdm(loader):", True),
        ("for batch in loader:", "same = loader\nfor batch in same:", True),
        ("for batch in loader:", "loaders = [loader]\nfor batch in loaders[0]:", False),
        ("for batch in loader:", f"{FUNCTION}iter(batches)\nfor batch in epoch(1, loader):", True),
        ("for batch in loader:", f"{FUNCTION}batches.collate_fn\nfor batch in epoch(1, batches=loader):", False),
        ("for batch in loader:", "from lightning import fit\nfit(loader)\nfor batch in loader:", False),
        ("for batch in loader:", "for batch in photos:", False),
    ],
)  # fmt: skip
def test_the_loader_is_followed_through_the_file(before: str, use: str, is_certain: bool) -> None:
    assert before in LOOP
    assert (after(LOOP.replace(before, use)) is not None) == is_certain


PREFETCHED = {"described": {"wrapper": {"class": "timm.data.loader.PrefetchLoader"}}}
TIMM = """from timm.data import create_loader
import mine

if mine.trains:
    loader = create_loader(mine.photos, (3, 224, 224), 32)  # theirs
    for batch in loader:
        train(batch)
"""


def test_timms_prefetcher_gets_the_loaders_batches() -> None:
    text = (FOLDER / "timm_loader.py").read_text()
    assert after(text) is None  # nothing says whether there is a prefetcher
    found = after(text, **PREFETCHED)
    assert found is not None
    added = [line for line in found.splitlines() if line not in text.splitlines()]
    made = "    loader_train.loader = headrace_loader.make_dataloader(batch_size=args.batch_size)"
    assert added == ["import headrace_loader", made]
    lines = TIMM.splitlines(keepends=True)
    own = "    loader.loader = headrace_loader.make_dataloader(batch_size=32)\n"
    assert after(TIMM, **PREFETCHED) == "".join([*lines[:2], "import headrace_loader\n", *lines[2:5], own, *lines[5:]])


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("    loader = create", "    first = loader = create"),
        ("    loader = create", "    mine.begin(); loader = create"),
        ("create_loader(mine.photos, (3, 224, 224), 32)", "list(create_loader(mine.photos, (3, 224, 224), 32))"),
        ("timm.data import create_loader", "torch.utils.data import DataLoader as create_loader"),
        ("        train(batch)", "        loader.mixup_enabled = False"),
    ],
    ids=["two names", "no statement by itself", "no name", "not timm's call", "asks for more"],
)
def test_a_prefetcher_that_is_not_certain_is_left_alone(before: str, now: str) -> None:
    assert before in TIMM
    assert after(TIMM.replace(before, now), **PREFETCHED) is None


def test_timms_loader_without_a_prefetcher_makes_room() -> None:
    text = (FOLDER / "timm_loader.py").read_text()
    found = after(text.replace("device=device,\n    )", "device=device,\n        use_prefetcher=False,\n    )"))
    assert found is not None
    assert "loader_train = headrace_loader.make_dataloader(batch_size=args.batch_size)" in found


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
