"""Changes of the user's code: exact texts, and diffs that `patch` applies and that still parse."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from file_trees import git_apply, patch

from headrace.doctor.edits import LoaderScript, ScriptSource, WantedEdit

PATH = "/home/ada/train/train.py"
FACTS: dict[str, Any] = {"num_workers": 2, "batch_size": 32, "file": PATH}
FACTS |= {"pin_memory": False, "persistent_workers": False, "in_order": True}
HEAD = "import torch\nfrom torch.utils.data import DataLoader\n\n"


def after(text: str, wanted: WantedEdit, **facts: Any) -> str | None:
    """The file as it would be; None where the change is not certain."""
    found = LoaderScript([ScriptSource(PATH, text)], {**FACTS, **facts}).changed(wanted)
    return None if found is None else found[0].after


def line_after(call: str, wanted: WantedEdit, **facts: Any) -> str | None:
    text = after(f"{HEAD}loader = {call}\n", wanted, **facts)
    return None if text is None else text.removeprefix(f"{HEAD}loader = ").removesuffix("\n")


FOUR = WantedEdit({"num_workers": "4"})
KEPT = WantedEdit({"num_workers": "4", "persistent_workers": "True"})


@pytest.mark.parametrize(
    ("call", "wanted", "expected"),
    [
        ("DataLoader(ds, 32, num_workers=2)", FOUR, "DataLoader(ds, 32, num_workers=4)"),
        ("DataLoader(ds, 32, num_workers = 2 )", FOUR, "DataLoader(ds, 32, num_workers = 4 )"),
        ("DataLoader(ds, 32, num_workers=(2))", FOUR, "DataLoader(ds, 32, num_workers=(4))"),
        ("DataLoader(ds, 32, num_workers=2)", KEPT, "DataLoader(ds, 32, num_workers=4, persistent_workers=True)"),
        ("DataLoader(ds, 32, num_workers=2,)", KEPT, "DataLoader(ds, 32, num_workers=4, persistent_workers=True,)"),
        (
            "DataLoader(\n    ds,\n    batch_size=32,\n    num_workers=2,  # of 8\n)",
            KEPT,
            "DataLoader(\n    ds,\n    batch_size=32,\n    persistent_workers=True,\n    num_workers=4,  # of 8\n)",
        ),
        (
            "DataLoader(ds, 32, num_workers=2, collate_fn=(lambda b: (b)))",
            WantedEdit({"pin_memory": "True"}),
            "DataLoader(ds, 32, num_workers=2, collate_fn=(lambda b: (b)), pin_memory=True)",
        ),
        ('DataLoader(Folder("é"), 32, num_workers=2)', FOUR, 'DataLoader(Folder("é"), 32, num_workers=4)'),
        (
            "torch.utils.data.DataLoader(ds, 32, num_workers=2)",
            FOUR,
            "torch.utils.data.DataLoader(ds, 32, num_workers=4)",
        ),
        (
            "DataLoader(ds, 32, True, None, None, 2)",
            KEPT,
            "DataLoader(ds, 32, True, None, None, 4, persistent_workers=True)",
        ),
        ("DataLoader(ds, 32, **options, num_workers=2)", FOUR, "DataLoader(ds, 32, **options, num_workers=4)"),
    ],
)
def test_arguments_are_replaced_or_added_and_all_else_stays(call: str, wanted: WantedEdit, expected: str) -> None:
    assert line_after(call, wanted) == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("DataLoader(ds, (32))", "DataLoader(ds, (32), num_workers=4)"),
        ("DataLoader(dataset=ds, batch_size=(32))", "DataLoader(dataset=ds, batch_size=(32), num_workers=4)"),
        (
            "DataLoader(ds, 32,\n           shuffle=True)",
            "DataLoader(ds, 32,\n           num_workers=4,\n           shuffle=True)",
        ),
    ],
)
def test_an_argument_goes_beside_the_last_one(call: str, expected: str) -> None:
    assert line_after(call, FOUR, num_workers=0) == expected


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("DataLoader(ds, 32, **options)", "options may give it"),
        ("DataLoader(ds, *arguments)", "arguments may give it"),
        ("DataLoader(ds, 64, num_workers=2)", "it has another batch size"),
        ("DataLoader(ds, 32)", "it has no workers"),
        ("make_loader(ds, 32, num_workers=2)", "it is another function"),
        ("DataLoader(ds, 32, num_workers=args.j)", "the script decides it, and where is not known"),
        ("DataLoader(ds, 32, num_workers=min(8, cores))", "the script computes it"),
    ],
)
def test_what_is_not_certain_is_no_change(call: str, why: str) -> None:
    assert line_after(call, FOUR) is None, why


OPTION = """import argparse
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("-j", "--num-workers", {})
args = parser.parse_args()
loader = DataLoader(ds, 32, num_workers=args.{})
"""


def option(arguments: str, name: str, command: tuple[str, ...] = (), **facts: Any) -> str | None:
    """The line of the option, as it would be."""
    source = ScriptSource(PATH, OPTION.format(arguments, name))
    found = LoaderScript([source], {**FACTS, **facts}, command).changed(FOUR)
    return None if found is None else found[0].after.splitlines()[3].partition('workers", ')[2][:-1]


def test_an_option_of_the_scripts_own_gets_another_default() -> None:
    assert option("type=int, default=2", "num_workers") == "type=int, default=4"
    assert option('dest="j", default=2', "j") == 'dest="j", default=4'


def test_an_option_that_does_not_decide_is_left_alone() -> None:
    assert option("default=2", "num_workers", ("train.py", "--num-workers", "2")) is None
    assert option("default=2", "num_workers", ("train.py", "-j2")) is None
    assert option("default=8", "num_workers") is None  # the loader has another number
    assert option("default=CORES", "num_workers") is None
    assert option("default=2", "workers") is None
    assert option("type=int", "num_workers") is None


def test_what_is_there_already_is_no_change() -> None:
    assert line_after("DataLoader(ds, 32, num_workers=2)", WantedEdit({"num_workers": "2"})) is None


TWO = f"""{HEAD}train = DataLoader(a, 32, num_workers=2)
val = DataLoader(b, 32, num_workers=2)
for step, batch in enumerate(val):
    pass
for step, batch in enumerate(train):
    pass
"""


def test_of_two_alike_the_one_that_is_iterated_there_is_changed() -> None:
    text = after(TWO, FOUR, line=8)
    assert text == TWO.replace("DataLoader(a, 32, num_workers=2)", "DataLoader(a, 32, num_workers=4)")


def test_a_call_elsewhere_is_not_changed_where_the_text_that_iterates_is_unknown() -> None:
    call = "DataLoader(ds, 32, num_workers=2)"
    assert line_after(call, FOUR) is not None
    assert line_after(call, FOUR, file="<string>") is None
    assert line_after(call, FOUR, file=None) is None


def test_of_two_alike_none_is_changed_where_the_line_tells_nothing() -> None:
    assert after(TWO, FOUR, line=1) is None


WHOLE = f"""# -*- coding: utf-8 -*-
'''Trains, über alles.'''
{HEAD}
loader = DataLoader(
    range(128), 32, num_workers=2,
)


def main():
    for batch in loader:
        pass"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_several_arguments_apply_by_patch_and_parse(tmp_path: Path, newline: str) -> None:
    text = WHOLE.replace("\n", newline)
    found = LoaderScript([ScriptSource(PATH, text)], {**FACTS, "line": 12}).changed(KEPT | {"pin_memory": "True"})
    assert found is not None
    (file,) = found
    assert apply(tmp_path, "train.py", text, file.diff("/home/ada/train")) == file.after
    ast.parse(file.after)
    assert "num_workers=4, persistent_workers=True, pin_memory=True," in file.after
    assert newline == "\n" or "\n" not in file.after.replace("\r\n", "")


@pytest.mark.parametrize("name", ["train it.py", "entraîner.py", "my code/train.py"])
def test_a_path_of_any_name_applies_by_patch(tmp_path: Path, name: str) -> None:
    text = f"{HEAD}loader = DataLoader(ds, 32, num_workers=2)\n"
    path = str(tmp_path / name)
    found = LoaderScript([ScriptSource(path, text)], {**FACTS, "file": path}).changed(FOUR)
    assert found is not None
    (tmp_path / name).parent.mkdir(exist_ok=True)
    assert apply(tmp_path, name, text, found[0].diff(str(tmp_path))) == found[0].after


def test_a_file_elsewhere_is_named_by_its_whole_path() -> None:
    source = ScriptSource(PATH, f"{HEAD}loader = DataLoader(ds, 32, num_workers=2)\n")
    found = LoaderScript([source], FACTS).changed(FOUR)
    assert found is not None
    assert found[0].diff("/srv").splitlines()[:2] == ["--- a/home/ada/train/train.py", "+++ b/home/ada/train/train.py"]


def apply(folder: Path, name: str, text: str, diff: str) -> str:
    """What `patch -p1` makes of the file, and `git apply`."""
    file = folder / name
    (folder / "changes.diff").write_bytes(diff.encode())
    results = []
    for applied in (patch, git_apply):
        file.write_bytes(text.encode())
        applied(folder, "changes.diff")
        results.append(file.read_bytes().decode())
    assert results[0] == results[1]
    return results[0]
