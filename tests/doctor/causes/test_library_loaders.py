"""Advice where another library gives the batches: by its own settings, as far as the probe could read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_sessions import MadeRun, made_session

from headrace.doctor.causes import diagnose


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
