"""The state of a mixture: each source's own in it, and what of another mixture is refused, by name."""

from __future__ import annotations

import json

import battery
import pytest
from mixture_data import factory, loader_of, write_places

import headrace as hr


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return write_places(tmp_path_factory.mktemp("mixture"))


def test_a_state_has_each_sources_own(places):
    mixed = factory(places, "one-source", remainder="short")()
    received = [0, 0]
    for batch in mixed:
        received[int(batch["source"][0])] += 1
        state = json.loads(json.dumps(mixed.state_dict()))
        for number, name in enumerate(mixed.sources):
            alone = loader_of(places, name, remainder="short")
            alone.load_state_dict(state["sources"][name])
            assert (alone.epoch, alone.next_step) == divmod(received[number], len(alone))
    assert len(json.dumps(state)) < 2000


def test_an_epoch_goes_on_at_its_edge(places):
    mixed = factory(places, "mixed")()
    list(mixed)
    assert (mixed.epoch, mixed.state_dict()["epoch"], mixed.state_dict()["step"]) == (1, 1, 0)
    mixed.set_epoch(0)
    battery.assert_equal(battery.kept(mixed), battery.kept(factory(places, "mixed")()), "set_epoch(0)")


DIFFERENT = {
    "weights": (
        {"weights": {"photos": 1, "scans": 1}},
        "expected weights {'photos': 1, 'scans': 1} as in this mixture, got {'photos': 2, 'scans': 1} in the state; "
        "pass weights={'photos': 2, 'scans': 1}",
    ),
    "batches": ({"batches": "one-source"}, "pass batches='mixed'"),
    "seed": ({"seed": 8}, "expected seed 8 as in this mixture, got 7 in the state; pass seed=7 to mix()"),
    "epoch": ({"epoch": 3}, "expected steps of an epoch 3 as in this mixture, got 6 in the state; pass epoch=6"),
    "a source's seed": (
        {"only": {"scans": {"seed": 9}}},
        "source 'scans' of the mixture: state: expected seed 9 as in this loader, got 1 in the state; pass seed=1",
    ),
    "a source's order": ({"only": {"photos": {"shuffle": False}}}, "source 'photos' of the mixture: state: expected"),
    "global batch": ({"batch_size": 6}, "got 12 in the state; pass batch_size=12"),
}


@pytest.mark.parametrize(("other", "says"), DIFFERENT.values(), ids=DIFFERENT)
def test_a_state_of_another_mixture_is_refused(places, other, says):
    state = factory(places, "mixed", epoch=6)().state_dict()
    resumed = factory(places, **({"batches": "mixed", "epoch": 6} | other))()
    with pytest.raises(hr.HeadraceError) as caught:
        resumed.load_state_dict(state)
    assert says in str(caught.value)


def test_a_state_of_another_dataset_names_the_source(places, tmp_path):
    state = factory(places, "mixed")().state_dict()
    other = {**places, "scans": write_places(tmp_path)["scans"].select(range(13))}
    with pytest.raises(hr.HeadraceError, match="source 'scans' of the mixture: state: expected samples in an epoch 13"):
        factory(other, "mixed", epoch=state["steps"])().load_state_dict(state)


def test_sources_in_another_order_are_refused(places):
    """What `batch["source"]` means would change in mid-run."""
    state = factory(places, "mixed")().state_dict()
    turned = dict(reversed(places.items()))
    with pytest.raises(hr.HeadraceError, match="pass the sources 'photos', 'scans', in this order"):
        factory(turned, "mixed")().load_state_dict(state)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda state: None, "expected the dict that a mixture's state_dict() gave, got None"),
        (lambda state: state["sources"]["scans"], "got that of a single loader"),
        (lambda state: state | {"version": 2}, "expected version 1 of a mixture, got 2"),
        (lambda state: {k: v for k, v in state.items() if k != "step"}, "got missing ['step'] and unknown []"),
        (lambda state: state | {"more": 1}, "got missing [] and unknown ['more']"),
        (lambda state: state | {"step": -1}, "state['step']: expected an int from 0 to 2**64 - 1, got -1"),
        (lambda state: state | {"step": True}, "state['step']: expected an int from 0 to 2**64 - 1, got True"),
        (lambda state: state | {"sources": []}, "state['sources']: expected a dict, got []"),
        (lambda state: state | {"step": 10**6}, "state['step']: expected less than"),
        (lambda state: state | {"step": 1}, "as follows from the mixture's epoch and step"),
        (lambda state: state | {"sources": {"photos": {}}}, "expected states of sources"),
        (lambda state: state | {"plan": 99}, "expected mixture's plan version 1"),
        (lambda state: state | {"epoch": 1 << 70}, "expected an int from 0 to"),
    ],
)
def test_spoiled_states_are_refused(places, spoil, says):
    mixed = factory(places, "mixed")()
    with pytest.raises(hr.HeadraceError) as caught:
        mixed.load_state_dict(spoil(mixed.state_dict()))
    assert says in str(caught.value)
    assert (mixed.epoch, mixed.next_step) == (0, 0)


def test_a_loader_does_not_take_a_mixtures_state(places):
    with pytest.raises(hr.HeadraceError, match="state: expected"):
        loader_of(places, "photos").load_state_dict(factory(places, "mixed")().state_dict())


def test_other_codecs_are_told_of_each_source(places):
    mixed = factory(places, "mixed")()
    state = json.loads(json.dumps(mixed.state_dict()))
    state["sources"]["scans"]["core"] = "another"
    with pytest.warns(UserWarning, match="source 'scans' of the mixture: this build decodes with"):
        mixed.load_state_dict(state)
