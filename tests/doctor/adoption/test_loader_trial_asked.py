"""When a Loader is tried, what of the run the trial is given, and what is said where it is not tried."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from machine_findings import quantities
from made_prescriptions import ROOMY, made
from made_sessions import MadeRun
from made_work import recorded_in
from replacing import replace

from headrace.doctor.adoption import Adoption, LoaderRecipe, loader_trial, module_text, trial
from headrace.doctor.adoption.trial import LoaderTrialRequest
from headrace.doctor.causes import diagnose
from headrace.doctor.causes.loader import coverage, is_lost, is_unsure
from headrace.doctor.measure import main_view_of
from headrace.doctor.session.after_run import AdoptedPart, LoaderTrial
from headrace.doctor.session.model import Session

WAITING = MadeRun(stages={"decode:Pillow load": 36_000}, cpu=1.0)
BOUND = MadeRun(stages={"decode:Pillow load": 500})
PART = AdoptedPart("Resize(256)", "view", "hr.Resize(256)", "check", "the filter is not known")
RECIPE = LoaderRecipe(parts=(PART,), reason="One part is unknown.", degree="part")
LOOK = Path("/session/look")
DRAFT = Adoption(RECIPE, "import headrace as hr\n")


def asked_of(session: Session, adoption: Adoption | None) -> tuple[LoaderTrial | None, list[str]]:
    """What came of it, and what was said before."""
    view, said = main_view_of(session), list[str]()
    assert view is not None
    return loader_trial(session, view, diagnose(session).ranks, adoption, LOOK, said.append), said


def measured(run: MadeRun = WAITING, **outcome: Any) -> Session:
    session = made(run, facts=ROOMY | {"cores": 2})
    session.mode = "measure"
    for name, value in outcome.items():
        setattr(session.outcome, name, value)
    return session


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[LoaderTrialRequest]:
    """Requests of trials, none of which is made."""
    found: list[LoaderTrialRequest] = []

    def tried(request: LoaderTrialRequest) -> LoaderTrial:
        found.append(request)
        return LoaderTrial("failed", "not here", request.module)

    monkeypatch.setattr(trial, "tried_loader", tried)
    return found


def test_a_loader_that_is_waited_for_is_tried(requests: list[LoaderTrialRequest]) -> None:
    session = measured()
    found, said = asked_of(session, DRAFT)
    assert found is not None
    assert (found.why, found.degree, found.reason) == ("failed", "part", DRAFT.recipe.reason)
    assert found.parts == [PART]
    assert [quantities(line) for line in said] == [["10 s", "15 s"]]
    (request,) = requests
    run = recorded_in(session)
    assert (request.module, request.look) == (DRAFT.module_text, str(LOOK))
    assert request.cores == 2
    assert request.team == run.team
    assert sum(request.step_us) == pytest.approx(run.unhindered_us(), rel=0.01)


MADE = {"image": "float32[4, 3, 8, 8]", "label": "int64[4]", "path": "str"}


def exact(monkeypatch: pytest.MonkeyPatch, **outcome: Any) -> LoaderTrial:
    """The outcome for a recipe that was exact before its trial."""
    monkeypatch.setattr(trial, "tried_loader", lambda request: LoaderTrial("measured", **outcome))
    recipe = LoaderRecipe(fields={"image": "hr.Image()"}, degree="exact", covered=("image", "label"))
    found, _ = asked_of(measured(), Adoption(recipe, module_text(recipe, {})))
    assert found is not None
    assert found.covered == ["image", "label"]
    return found


def test_a_loader_whose_samples_differ_is_no_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = {"image": "same", "label": "different: by 3", "path": "drawn: 8 samples compared"}
    found = exact(monkeypatch, leaves=MADE, verified=verified)
    assert (found.degree, [part.part for part in found.parts]) == ("part", ["label"])
    for text in (found.reason, found.module):
        assert "by 3" in text
    assert exact(monkeypatch, leaves=MADE, verified=verified | {"label": "same"}).degree == "exact"


def test_a_drawn_array_is_told_with_the_samples_that_were_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = {"image": "drawn: 8 samples compared", "label": "same"}
    found = exact(monkeypatch, leaves=MADE, verified=verified)
    (part,) = found.parts
    assert (found.degree, part.part, part.certainty) == ("exact", "image", "drawn")
    assert not is_unsure(part)
    for text in (coverage(found), found.module):
        assert "8 samples" in text
    many = replace(found, parts=[replace(part, part=str(number)) for number in range(4)])
    assert "4 arrays" in coverage(many)


def test_a_batch_that_lacks_an_array_of_the_scripts_is_no_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = exact(monkeypatch, leaves=MADE, verified={"image": "same", "label": "same", "path": "different: leaves"})
    assert (found.degree, [part.part for part in found.parts]) == ("part", ["path"])
    assert all(is_lost(part) for part in found.parts)


@pytest.mark.parametrize(
    ("session", "why"),
    [
        (measured(BOUND), "A step waits 0 % for data: nothing is to be gained."),
        (measured(why="failed"), "It is tried on the run's files only after a measured run that came to its end."),
        (measured(why="interrupted"), "It is tried on the run's files only after a measured run that came to its end."),
    ],
)
def test_where_it_is_not_tried(session: Session, why: str, requests: list[LoaderTrialRequest]) -> None:
    found, said = asked_of(session, DRAFT)
    assert found is not None
    assert (found.why, found.detail, found.module, said) == ("not tried", why, DRAFT.module_text, [])
    assert requests == []


def test_an_observed_run_tries_nothing(requests: list[LoaderTrialRequest]) -> None:
    session = measured()
    session.mode = "observe"
    found, _ = asked_of(session, DRAFT)
    assert found is not None
    assert found.why == "not tried"
    assert requests == []


def test_data_that_is_not_known_is_said_with_its_reason(requests: list[LoaderTrialRequest]) -> None:
    recipe = LoaderRecipe(reason="ffmpeg decodes.")
    found, _ = asked_of(measured(), Adoption(recipe, None))
    assert found is not None
    assert (found.why, found.degree, found.reason, found.module) == ("not tried", "no", "ffmpeg decodes.", "")
    assert asked_of(measured(), None)[0] is None
    assert requests == []


def test_the_scripts_own_python_comes_first(requests: list[LoaderTrialRequest]) -> None:
    session = measured()
    trainer = session.processes[0]
    argv = ["/opt/python", "-u", "/home/ada/train.py", "--lr", "1"]
    trainer.facts["process"] = {"executable": "/opt/python", "argv": argv}
    asked_of(session, DRAFT)
    assert requests[0].interpreters == ["/opt/python", sys.executable]
    assert requests[0].paths == ["/home/ada", os.getcwd()]
