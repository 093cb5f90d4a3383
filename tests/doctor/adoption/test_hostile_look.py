"""A look is a file that anybody may have written: nothing of it is run, and a damaged one is said to be."""

from __future__ import annotations

import ast
import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_sessions import MadeRun, made_session, replace
from PIL import Image
from torch.utils.data import DataLoader

import headrace as hr
from headrace.doctor.adopting import LoaderAdoption
from headrace.doctor.adoption import Adoption, adopt
from headrace.doctor.adoption.view_codes import evaluated
from headrace.doctor.explain.look import read_look
from headrace.doctor.measure import TrainerView, main_view_of
from headrace.doctor.probe.look.value_look import LOOK_FILE, look_at_values
from headrace.doctor.probe.settings import SETTINGS_FILE, ProbeSettings
from headrace.doctor.session import SessionFolder
from headrace.doctor.session.model import Session
from headrace.errors import SessionError

COUNT = 4
CANARY = "canary"
RUNS = f"__import__('pathlib').Path({CANARY!r}).touch()"
HOSTILE = (
    RUNS, f'"]; {RUNS}; ["', f"']; {RUNS}; ['", f'"""\n{RUNS}\n"""', f"\n{RUNS}\n#", f"\u2028{RUNS}", f"\\'; {RUNS} #",
    f"hr.Image({RUNS})", f"hr.Image(dtype={RUNS})", f"{{{RUNS}}}", "'{{ 7 * 7 }}'", "{% raw %}", "\x00", "\ud800", "",
    "/", "..", "a.b", "0", "import os", "batch", "(" * 500,
)  # fmt: skip
texts = st.sampled_from(HOSTILE) | st.text(max_size=20)
codes = st.builds(
    "fields={{'image': {}}}, view=[{}], augment=[{}]".format,
    *[st.sampled_from(("hr.Image(dtype='float32')", "hr.Resize((12, 16))", "hr.open('/')", RUNS, repr(RUNS)))] * 3,
)


class Scenes:
    """Pictures of files as they are, of a class and a caption, with a constant."""

    def __init__(self, folder: Path) -> None:
        self.files = [f"{folder}/{number}.png" for number in range(COUNT)]
        self.targets = [number % 3 for number in range(COUNT)]
        self.captions = [f"scene {number * number}" for number in range(COUNT)]

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        pixels = torch.from_numpy(np.array(Image.open(self.files[index])))
        return {"image": pixels, "target": self.targets[index], "caption": self.captions[index], "split": "train"}


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A whole look."""
    folder = tmp_path_factory.mktemp("scenes")
    for number in range(COUNT):
        coarse = np.random.default_rng(number).integers(0, 256, (4, 5, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((16, 12), Image.Resampling.BICUBIC).save(folder / f"{number}.png")
    look_at_values(DataLoader(Scenes(folder)), str(folder / LOOK_FILE))  # type: ignore[arg-type]
    return (folder / LOOK_FILE).read_bytes()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Session, TrainerView]:
    session = made_session(tmp_path_factory.mktemp("run"), MadeRun(facts={"described": {}}))
    view = main_view_of(session)
    assert view is not None
    return session, view


def changed(held: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    begin = int.from_bytes(held[-8:], "little")
    outline = json.loads(held[begin:-8])
    change(outline)
    return held[:begin] + json.dumps(outline).encode() + held[-8:]


def adopted(held: bytes, run: tuple[Session, TrainerView], folder: Path) -> Adoption:
    (folder / LOOK_FILE).write_bytes(held)
    found = adopt(*run, read_look(folder / LOOK_FILE), folder)
    assert found is not None
    return found


def names(module: str) -> set[str]:
    """Names that a module uses, and attributes."""
    nodes = list(ast.walk(ast.parse(module)))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@pytest.fixture(scope="module")
def plain(held: bytes, run: tuple[Session, TrainerView], tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the module of the whole look."""
    found = adopted(held, run, tmp_path_factory.mktemp("plain"))
    assert found.recipe.covered == ("image", "target", "caption", "split")
    return names(found.module_text or "")


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_texts_a_look_holds_are_literals_of_the_module(
    held: bytes, plain: set[str], run: tuple[Session, TrainerView], monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    keys = {key: data.draw(texts) for key in ("image", "target", "caption", "split")}
    folder, constant, dataset = data.draw(texts), data.draw(texts), data.draw(texts)
    columns = data.draw(st.lists(texts, min_size=8, max_size=8))
    part = st.tuples(texts, st.none() | texts, texts)
    transform = st.fixed_dictionaries({"place": texts, "code": codes, "parts": st.lists(part, max_size=2)})
    transforms = data.draw(st.lists(transform, max_size=2))
    errors = data.draw(st.lists(texts, max_size=1))

    def change(outline: dict[str, Any]) -> None:
        outline["class"], outline["transforms"] = dataset, transforms
        for column, name in zip(outline["columns"], columns, strict=False):
            column["name"] = name
        for sample in outline["samples"]:
            for leaf in sample["leaves"]:
                leaf["path"][0] = keys[leaf["path"][0]]
                leaf["value"] = constant if leaf.get("value") == "train" else leaf.get("value")
            for each in sample["inputs"]:
                each["path"], each["member"] = (folder, each["path"]) if folder else (each["path"], None)
        outline["samples"] += [{**outline["samples"][0], "error": error} for error in errors]

    with tempfile.TemporaryDirectory() as scratch:
        monkeypatch.chdir(scratch)
        monkeypatch.setattr(hr, "open", lambda *_, **__: pytest.fail("a file was opened"))
        found = None
        with suppress(SessionError):
            found = adopted(changed(held, change), run, Path(scratch))
        assert not Path(CANARY).exists()
        monkeypatch.chdir("/")
    if found is not None and found.module_text is not None:
        assert names(found.module_text) <= {*plain, "Resize", "Image", "ROOT"}


@pytest.mark.parametrize(
    "code",
    [
        *("hr.open('/etc')", "hr.Loader()", "hr.IndexedTar('a.tar')", "hr.Text('a.json')", "hr.cached(1)", "hr.doctor"),
        *("hr.Resize(hr.open('/'))", "hr.Image.__init__", "os.system('x')", "hr.Resize((lambda: 1)())", RUNS),
    ],
)
def test_only_views_augmentations_and_images_are_evaluated(code: str) -> None:
    with pytest.raises(ValueError, match=r"expected|malformed"):
        evaluated(code)


@pytest.mark.parametrize(
    "code", ["hr.Image(dtype='float32', normalize=hr.IMAGENET)", "hr.RandomApply([hr.ColorJitter(0.1)], 0.5)"]
)
def test_what_transforms_become_is_evaluated(code: str) -> None:
    assert evaluated(code) is not None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_look_is_read_or_refused(held: bytes, tmp_path: Path, data: st.DataObject) -> None:
    kept = data.draw(st.integers(0, len(held)))
    begin = int.from_bytes(held[-8:], "little")
    damaged = bytearray(data.draw(st.sampled_from([held[:kept], held[kept:], held])))
    for _ in range(data.draw(st.integers(0, 3)) if damaged else 0):
        at = data.draw(st.integers(min(begin, len(damaged) - 1), len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    (tmp_path / LOOK_FILE).write_bytes(damaged)
    with suppress(SessionError):
        read_look(tmp_path / LOOK_FILE)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.long
def test_a_look_of_other_types_is_read_or_refused(held: bytes, tmp_path: Path, data: st.DataObject) -> None:
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=4,
    )

    def change(outline: dict[str, Any]) -> None:
        place: Any = outline
        while True:
            keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
                place[key] = data.draw(anything)
                return
            place = place[key]

    (tmp_path / LOOK_FILE).write_bytes(changed(held, change))
    with suppress(SessionError):
        read_look(tmp_path / LOOK_FILE)


def test_the_diagnosis_says_a_look_is_damaged(held: bytes, run: tuple[Session, TrainerView], tmp_path: Path) -> None:
    (tmp_path / LOOK_FILE).write_bytes(held[:-20])
    folder = SessionFolder(tmp_path, ProbeSettings(str(tmp_path), 0, 0, ""), is_kept=True)
    session = replace(run[0], mode="measure", notes=[])
    adopting = LoaderAdoption(["python", "train.py"], folder, pytest.fail)
    adopting.explain(session)
    assert adopting.adoption is not None
    assert adopting.adoption.module_text is None
    assert adopting.adoption.recipe.reason.endswith(session.notes[-1].text)
    assert not (tmp_path / SETTINGS_FILE).exists()  # nothing was started again
