"""Shards that webdataset streams from stores: the addresses that hr.open takes, or why there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden_sessions import session_of, sources
from made_recipes import described_recipe, known

from headrace.doctor.adoption import adopt, loader_trial
from headrace.doctor.adoption.module import module_text
from headrace.doctor.causes import diagnose, prescribe
from headrace.doctor.measure import main_view_of


def recipe_of(urls: list[str]) -> Any:
    stages = [
        known("webdataset.shardlists.SimpleShardList", urls=urls),
        known("webdataset.filters.FilterFunction", f={"function": "webdataset.filters._to_tuple"}, args=["jpg", "cls"]),
    ]
    return described_recipe(known("webdataset.compat.WebDataset", pipeline=stages))


@pytest.mark.parametrize(
    ("command", "source", "address"),
    [
        ("pipe:curl -L -s https://host/a/train-{}.tar || true", "hr.open(SOURCE)", "https://host/a/train-{}.tar"),
        ("https://host/a/train-{}.tar", "hr.open(SOURCE)", "https://host/a/train-{}.tar"),
        ("pipe:aws s3 cp s3://bucket/train-{}.tar -", "hr.open(SOURCE)", "s3://bucket/train-{}.tar"),
        ("pipe:gsutil cat 'gs://bucket/a b/train-{}.tar'", "hr.open(SOURCE)", "gs://bucket/a b/train-{}.tar"),
        ("pipe:cat /data/train-{}.tar", "hr.open(SOURCE)", "/data/train-{}.tar"),
        (
            "pipe:aws --endpoint-url=http://127.0.0.1:9000 s3 cp s3://bucket/train-{}.tar - --no-sign-request",
            "hr.open(SOURCE, store_options={'endpoint': 'http://127.0.0.1:9000', 'anonymous': True})",
            "s3://bucket/train-{}.tar",
        ),
    ],
)
def test_commands_and_urls_become_one_pattern_of_addresses(command: str, source: str, address: str) -> None:
    recipe = recipe_of([command.format(f"{number:06}") for number in range(3)])
    assert recipe.source == source
    assert recipe.constants["SOURCE"].strip("\"'") == address.format("{000000..000002}")
    (part,) = [one for one in recipe.parts if one.argument == "source"]
    assert part.certainty == "differs"
    compile(module_text(recipe), "module", "exec")


@pytest.mark.parametrize(
    ("shard", "note"),
    [
        ("https://***@host/train-000000.tar?***", "had a user or a signature"),
        ("pipe:curl -H 'Authorization: Bearer ***' https://host/train-000000.tar", "default_headers"),
        ("pipe:curl -u *** https://host/train-000000.tar", "default_headers"),
    ],
)
def test_credentials_are_asked_for_and_left_out_of_the_address(shard: str, note: str) -> None:
    recipe = recipe_of([shard])
    assert recipe.constants["SOURCE"] == '"https://host/train-000000.tar"'
    (part,) = recipe.unsure
    assert note in part.note
    assert recipe.degree == "draft"


@pytest.mark.parametrize(
    ("shards", "reason"),
    [
        (["pipe:aws s3 cp s3://bucket/a.tar - | pigz -d"], "chain of commands"),
        (["pipe:./get-shard 17"], "names no address"),
        (["ais://bucket/a.tar"], "ais:// cannot be opened"),
        (
            ["pipe:aws --profile a s3 cp s3://b/a.tar -", "pipe:aws --profile b s3 cp s3://b/c.tar -"],
            "need different store_options",
        ),
    ],
)
def test_what_cannot_be_opened_says_why(shards: list[str], reason: str) -> None:
    recipe = recipe_of(shards)
    assert recipe.degree == "no"
    assert reason in recipe.reason


def test_a_recorded_run_on_piped_shards_is_a_draft_that_is_not_tried(tmp_path: Path) -> None:
    session = session_of("remote_pipe", tmp_path)
    view = main_view_of(session)
    assert view is not None
    adoption = adopt(session, view, sources("remote_pipe"))
    assert adoption is not None
    assert adoption.module_text is not None
    assert "/bucket/shards/train-{000000..000003}.tar" in adoption.module_text
    assert "planted" not in adoption.module_text
    diagnosis = diagnose(session)
    said: list[str] = []
    session.loader_trial = loader_trial(session, view, diagnosis.ranks, adoption, said.append)
    assert session.loader_trial is not None
    assert session.loader_trial.why == "in a store"
    assert said == []
    remedies = {one.code: one for one in prescribe(session, diagnosis).remedies}
    assert remedies["loader"].helps
    assert remedies["loader"].prediction is None
    assert remedies["loader"].degree == "draft"
    assert "over the store" in remedies["loader"].title


@pytest.mark.parametrize(("name", "store"), [("remote_boto3", "s3://bucket"), ("remote_fsspec", "http://127.0.0.1")])
def test_a_dataset_that_asks_a_store_itself_is_told_what_to_write(name: str, store: str, tmp_path: Path) -> None:
    session = session_of(name, tmp_path)
    view = main_view_of(session)
    assert view is not None
    adoption = adopt(session, view, sources(name))
    assert adoption is not None
    assert adoption.recipe.degree == "no"
    assert f"itself asks {store} for samples" in adoption.recipe.reason
    assert "manifest" in adoption.recipe.reason
