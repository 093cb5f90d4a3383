"""`headrace check` of scripts with planted faults, and of the same scripts without them."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from observed_runs import CASES, headrace, on_two_ranks, python

SCRIPTS = ["checked.py", "checked_streams.py"]


def planted() -> list[Any]:
    """A parameter for each case: script, name, the code of its fault, its ranks, and whether the fault is certain."""
    found = []
    functions = [(script, function) for script in SCRIPTS for function in ast.parse((CASES / script).read_text()).body]
    for script, function in functions:
        for call in function.decorator_list if isinstance(function, ast.FunctionDef) else []:
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "planted":
                options = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
                ranks, certain = options.get("ranks", 1), options.get("certain", True)
                code, name = ast.literal_eval(call.args[0]), function.name  # type: ignore[union-attr]
                found.append(pytest.param(script, name, code, ranks, certain, id=name))
    return found


UNUSUAL = [
    *("streams_that_shuffle_alike", "streams_that_shuffle_alike_before_they_read", "an_endless_stream"),
    *("zero_masks", "masks_of_ones", "embeddings", "four_ratings", "two_views_and_one_class", "a_curriculum"),
    *("weights", "folds", "accuracy_on_training_samples", "a_stream_without_files", "repeated_augmentation"),
    *("a_stream_that_reads_all_and_keeps_its_own", "boxes_of_the_file_beside_those_of_the_image"),
    *("the_logarithm_of_a_depth", "folds_of_streams", "streams_that_read_all_and_keep_their_split"),
    "an_endless_stream_of_permutations",
]


def checked(folder: Path, ranks: int, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Return the exit status, the document and the printed report of a check."""
    arguments = (*arguments, str(folder))
    command = python(*arguments) if ranks == 1 else on_two_ranks(*arguments)
    ran = headrace("check", "--json", str(folder / "session.json"), "--", *command, tries_loader=True)
    return ran.returncode, json.loads((folder / "session.json").read_text()), ran.stdout


@pytest.mark.one_in(8)
@pytest.mark.parametrize(("script", "name", "code", "ranks", "certain"), planted())
def test_a_planted_fault_is_found(script: str, name: str, code: str, ranks: int, certain: bool, tmp_path: Path) -> None:
    status, document, printed = checked(tmp_path, ranks, script, name, "faulty")
    (fault,) = document["faults"]
    assert (fault["code"], fault["certainty"] == "certain", status) == (code, certain, 101 if certain else 0)
    assert code in printed
    assert document["check"]["looked_at"]


@pytest.mark.one_in(10)
@pytest.mark.parametrize(("script", "name", "code", "ranks", "certain"), planted())
def test_the_correct_script_raises_no_alarm(
    script: str, name: str, code: str, ranks: int, certain: bool, tmp_path: Path
) -> None:
    status, document, printed = checked(tmp_path, ranks, script, name, "right")
    assert (document["faults"], status) == ([], 0)
    assert printed.startswith("No fault found")


@pytest.mark.one_in(11)
@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_script_raises_no_alarm(name: str, tmp_path: Path) -> None:
    ranks = 2 if name == "repeated_augmentation" else 1
    status, document, _ = checked(tmp_path, ranks, "unusual.py", name)
    assert (document["faults"], status) == ([], 0)
