"""The tutorial and the skill: commands parse with the present options, a script takes its module, JSON has the keys."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pytest
from file_trees import git_apply
from made_prescriptions import made, prescribed
from made_sessions import MadeRun
from typer.main import get_command

from headrace.doctor.causes import diagnose
from headrace.doctor.report import document
from headrace.doctor.session.model import LoaderTrial
from headrace.tools.command_line import app

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = (DOCS / "doctor" / "tutorial.md").read_text()
SKILL = (DOCS / "skill" / "SKILL.md").read_text()
COMMANDS = [
    *re.findall(r"^\$ headrace (.+)$", TUTORIAL, re.MULTILINE),
    *re.findall(r"^headrace (.+)$", SKILL, re.MULTILINE),
    *re.findall(r"`headrace (doctor [^`]+)`", SKILL),
]


def blocks(kind: str) -> list[str]:
    """The blocks of this kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 3


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_parses(command: str) -> None:
    words, whole = shlex.split(command), get_command(app)
    while words:  # each group leaves its subcommand's words
        context = whole.make_context(str(whole.name), list(words))
        left = [*getattr(context, "_protected_args", []), *context.args]
        if not left or not hasattr(whole, "resolve_command") or "headrace.doctor.command" in context.meta:
            return
        _, found, words = whole.resolve_command(context, left)
        assert found is not None
        whole = found


def test_an_option_that_there_is_not_would_be_found() -> None:
    with pytest.raises(Exception, match="No such option"):
        test_a_command_parses("doctor --appply x -- python train.py")


def test_the_script_takes_the_module(tmp_path: Path) -> None:
    (script, module), (diff,) = blocks("python"), blocks("diff")
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "loader.patch").write_text(diff)
    git_apply(tmp_path, "loader.patch")
    assert "DataLoader(" not in (tmp_path / "train.py").read_text()
    ast.parse((tmp_path / "train.py").read_text())
    names = {one.name for one in ast.parse(module).body if hasattr(one, "name")}
    assert names == {"make_loader", "batches", "make_dataloader"}


def test_the_report_has_the_keys_of_the_skill() -> None:
    session = made(MadeRun(stages={"decode:Pillow load": 8_000}))
    session.loader_trial = LoaderTrial("measured")
    report = json.loads(document(session, diagnose(session), prescribed(session)))
    (table,) = re.findall(r"^\| key \|.*\n((?:\|.*\n)+)", SKILL, re.MULTILINE)
    keys = [key for row in table.splitlines() for key in re.findall(r"`([\w.\[\]]+)`", row.split("|")[1])]
    assert len(keys) == 9
    for key in keys:
        value = report
        for part in key.replace("[0]", "[]").split("."):
            value = value[part.removesuffix("[]")]
            value = value[0] if part.endswith("[]") else value
    remedies = report["prescription"]["remedies"]
    assert {"code", "helps", "why", "prediction", "costs", "degree"} <= set(remedies[0])
    predicted = next(remedy["prediction"] for remedy in remedies if remedy["prediction"] is not None)
    assert {"step_us", "low_us", "high_us"} <= set(predicted)
