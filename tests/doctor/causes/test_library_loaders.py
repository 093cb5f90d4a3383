"""Advice where another library gives the batches: by its own settings, as far as the probe could read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_sessions import MadeRun, made_session

from headrace.doctor.causes import diagnose
from headrace.doctor.causes.stages import source_advice
from headrace.doctor.measure import Join, TrainerView
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import LoaderFacts


def view_of(session: Session) -> TrainerView:
    return TrainerView.of(session, session.trainers[0], Join(session))


def advice(session: Session, source: str) -> str:
    session.trainers[0].loaders = [LoaderFacts(0, {"source": source})]
    return source_advice(view_of(session), f"source:{source}, train.py:31")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nvidia.DALIGenericIterator", "num_threads= of the pipeline"),
        ("webdataset.DataPipeline", "webdataset.WebLoader("),
        ("get_batch", "headrace.ThreadDataLoader"),
    ],
)
def test_each_library_has_advice_in_its_own_terms(tmp_path: Path, source: str, said: str) -> None:
    assert said in advice(made_session(tmp_path, MadeRun()), source)


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ({"class": "litdata.streaming.dataset.StreamingDataset"}, "max_pre_download="),
        ({"class": "train.Images", "bases": ["streaming.base.dataset.StreamingDataset"]}, "predownload="),
        ({"class": "train.Images", "bases": ["torch.utils.data.dataset.Dataset"]}, None),
    ],
)
def test_workers_that_wait_for_shards_are_told_of_their_cache(
    tmp_path: Path, dataset: dict[str, Any], said: str | None
) -> None:
    facts = {"dataset": dataset["class"], "described": {"dataset": dataset}}
    run = MadeRun(stages={"read:file": 6_000, "wait:flock": 3_000, "decode:PIL": 1_000}, facts=facts)
    (found,) = [one.advice for one in diagnose(made_session(tmp_path, run)).findings if one.code == "stage-read"]
    assert any(option in found for option in ("max_pre_download=", "predownload=")) == (said is not None)
    assert (said or "") in found
