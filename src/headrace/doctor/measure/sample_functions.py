"""Functions that produce a sample, by the script's lines: library calls, and the script's own Python.

Three measurements are combined without double counting:

- Stages were timed in all batches. A function that is a stage has the stage's share, distributed over the lines that
  called it, as the calls of inspected samples show.
- Functions that are no stages (numpy, torch, scipy) were timed in inspected samples. They belong to the enclosing
  stage, mostly the dataset's own code, and are bounded by it, and by the stack samples of their line.
- Stack samples of a line beyond these calls are the script's own Python, whose sum is bounded by what is left of the
  dataset's own code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ..session.producers import BatchProducer, ObservedCall, ObservedSample
from .batches import GETITEM, LINES_BUSY_US, line_shares
from .diagnosis import SampleFunction, StagePart

CALL = "call"
"""Category of functions that are measured in inspected samples only."""
OF_A_BATCH = ("collate",)
"""Categories of stages that process a batch, not a sample."""
LEFT_OUT = ("read", "remote", "lookup", "scan", "wait", "other", "serialise")
"""Categories of file access and the loader itself, which have findings of their own."""
LONGEST = 2.0
"""Multiple of the median call that caps longer calls: a lost core says nothing about the function."""
LEAST = 0.005
"""Share of batch production below which a function is left out."""


@dataclass
class _Calls:
    """Calls of one function from one line, inside one stage."""

    name: str
    place: str | None
    around: str
    """Stage in which the time is counted."""
    by_sample: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    facts: dict[str, Any] = field(default_factory=dict)
    longest: int = -1

    def add(self, sample: int, us: int, facts: dict[str, Any]) -> None:
        self.by_sample[sample] += us
        if us > self.longest:
            self.longest, self.facts = us, facts

    def mean_us(self, samples: int) -> float:
        """Return the mean over all samples, including samples without a call."""
        return sum(self.by_sample.values()) / samples

    def usual_us(self, samples: int) -> float:
        """Return the mean with outliers capped."""
        most = LONGEST * median(self.by_sample.values())
        return sum(min(us, most) for us in self.by_sample.values()) / samples


@dataclass(frozen=True)
class _Share:
    """Share of batch production that a function takes at one line."""

    name: str
    place: str | None
    around: str
    share: float
    facts: dict[str, Any]


def sample_functions(
    makers: Sequence[BatchProducer],
    samples: Sequence[ObservedSample],
    collated: Sequence[ObservedSample],
    stages: Sequence[StagePart],
    item_samples: int = 1,
) -> list[SampleFunction]:
    """Return the functions of batch production in descending order; none without inspected samples.

    Args:
        makers: Processes that produced the batches, for their lines.
        samples: Inspected samples of the loader.
        collated: The same for batches.
        stages: Stages of batch production.
        item_samples: Samples per item of the dataset.
    """
    sample_us = sum(stage.wall_us for stage in stages)
    if not samples or sample_us <= 0:
        return []
    wholes = {f"{stage.category}:{stage.label}": stage.share for stage in stages}
    calls = [*_grouped(samples, wholes, GETITEM), *_grouped(collated, wholes, "")]
    lines, sampled_us = line_shares(makers)
    bounds = lines if sampled_us >= LINES_BUSY_US else {}
    shares = list(_of_stages(calls, wholes, len(samples), len(collated)))
    within = _of_calls(calls, len(samples), sample_us * item_samples, bounds)
    within = _no_more_than(wholes.get(GETITEM, 0.0), _no_more_than_lines(within, bounds, shares))
    named = {name.partition(":")[2] for name in wholes}
    left = wholes.get(GETITEM, 0.0) - sum(one.share for one in within)
    own = _no_more_than(max(left, 0.0), _own_lines(lines, [*shares, *within], named))
    return _merged([*shares, *within, *own], lines, sample_us)


def _grouped(samples: Sequence[ObservedSample], stages: Mapping[str, float], outside: str) -> list[_Calls]:
    """Sum up calls by function, line and enclosing stage, without nested calls.

    A call without enclosing stage counts for the stage `outside`, or not at all if that is empty.
    """
    found: dict[tuple[str, str | None, str], _Calls] = {}
    for number, sample in enumerate(samples):
        inner: dict[int, int] = defaultdict(int)
        for call in sample.calls:
            if "inside" in call.facts:
                inner[call.facts["inside"]] += call.facts.get("us", 0)
        for place, call in enumerate(sample.calls):
            around = _stage_around(sample.calls, call, stages) or outside
            us = max(call.facts.get("us", 0) - inner[place], 0)
            if around:
                key = (_name(sample.calls, call), call.place, around)
                found.setdefault(key, _Calls(*key)).add(number, us, call.facts)
    return list(found.values())


def _stage_around(calls: Sequence[ObservedCall], call: ObservedCall, stages: Mapping[str, float]) -> str:
    """Return the stage of the call itself or the stage around it; empty if there is none."""
    for _ in calls:
        if call.stage in stages:
            return call.stage
        outer = call.facts.get("inside")
        if not isinstance(outer, int) or not 0 <= outer < len(calls):
            break
        call = calls[outer]
    return ""


def _name(calls: Sequence[ObservedCall], call: ObservedCall) -> str:
    """Return the name of a call's function.

    A transform inside a function without a stage counts as that function: PIL.ImageEnhance, for example, converts. The
    name of a decode includes the image mode, since 16-bit images differ.
    """
    outer = call.facts.get("inside")
    if call.stage.startswith("transform:") and isinstance(outer, int) and 0 <= outer < len(calls):
        return calls[outer].stage if calls[outer].stage.startswith(f"{CALL}:") else call.stage
    mode = call.facts.get("mode") if call.stage == "decode:Pillow load" else None
    return f"{call.stage} {mode}" if isinstance(mode, str) else call.stage


def _of_stages(calls: Sequence[_Calls], wholes: Mapping[str, float], samples: int, batches: int) -> Iterable[_Share]:
    """Distribute stages over the lines and functions that they were called from."""
    by_stage: dict[str, list[tuple[_Calls, float]]] = defaultdict(list)
    for one in calls:
        if one.around != GETITEM:
            in_all = batches if one.around.partition(":")[0] in OF_A_BATCH else samples
            by_stage[one.around].append((one, one.usual_us(in_all)))
    for stage, parts in by_stage.items():
        whole_us = sum(us for _, us in parts)
        for one, us in parts:
            if whole_us > 0:
                yield _Share(one.name, one.place, stage, wholes[stage] * us / whole_us, one.facts)


def _of_calls(calls: Sequence[_Calls], samples: int, item_us: float, bounds: Mapping[str, float]) -> list[_Share]:
    """Return the functions called by the dataset's own code, as shares of a sample's time.

    Stack samples bound outliers of a line. For lines without stack samples, outliers are capped.
    """
    return [
        _Share(one.name, one.place, GETITEM, us / item_us, one.facts)
        for one in calls
        if one.around == GETITEM
        for us in [one.mean_us(samples) if one.place in bounds else one.usual_us(samples)]
    ]


def _no_more_than_lines(
    within: Sequence[_Share], bounds: Mapping[str, float], stages: Sequence[_Share]
) -> list[_Share]:
    """Scale down the calls of a line that exceed its stack samples."""
    of_stages: dict[str | None, float] = defaultdict(float)
    for one in stages:
        of_stages[one.place] += one.share
    at_place: dict[str | None, list[_Share]] = defaultdict(list)
    for one in within:
        at_place[one.place].append(one)
    found: list[_Share] = []
    for place, parts in at_place.items():
        most = 1.0 if place is None or place not in bounds else max(bounds[place] - of_stages[place], 0.0)
        found += _no_more_than(most, parts)
    return found


def _no_more_than(most: float, parts: Sequence[_Share]) -> list[_Share]:
    whole = sum(one.share for one in parts)
    factor = min(most / whole, 1.0) if whole > 0 else 0.0
    return [_Share(one.name, one.place, one.around, one.share * factor, one.facts) for one in parts]


def _own_lines(lines: Mapping[str, float], calls: Iterable[_Share], stages: set[str]) -> list[_Share]:
    """Return the time of lines outside their calls, except in functions that are stages themselves."""
    of_calls: dict[str | None, float] = defaultdict(float)
    for one in calls:
        of_calls[one.place] += one.share
    return [
        _Share(f"getitem:{_function(place)}", place, GETITEM, share - of_calls[place], {})
        for place, share in lines.items()
        if share > of_calls[place] and not any(_is_of(place, label) for label in stages)
    ]


def _function(place: str) -> str:
    """Return `file:function` of `file:line:function`, which groups the lines of a function."""
    file, _, function = place.rsplit(":", 2)
    return f"{file}:{function}"


def _is_of(place: str, label: str) -> bool:
    """Return True if a line belongs to a class or function of this name."""
    function = place.rpartition(":")[2]
    return bool(label) and (function == label or function.startswith(f"{label}."))


def _merged(shares: Iterable[_Share], lines: Mapping[str, float], sample_us: float) -> list[SampleFunction]:
    """Merge the shares of one function at several lines. A function without call site gets its own line."""
    by_name: dict[str, list[_Share]] = defaultdict(list)
    for one in shares:
        by_name[one.name].append(one)
    found = []
    for name, parts in by_name.items():
        category, _, label = name.partition(":")
        share = sum(one.share for one in parts)
        if share < LEAST or category in LEFT_OUT:
            continue
        parts.sort(key=lambda one: -one.share)
        places = list(dict.fromkeys(one.place for one in parts if one.place is not None and one.share > 0))
        own = sorted((place for place in lines if _is_of(place, label)), key=lambda place: -lines[place])
        arounds: dict[str, float] = defaultdict(float)
        for one in parts:
            arounds[one.around] += one.share
        found.append(
            SampleFunction(
                category=category,
                name=label.rpartition(":")[2] if category == "getitem" else label,
                places=places or own[:1],
                share=share,
                wall_us=share * sample_us,
                inside=dict(arounds),
                library=_library(parts[0].facts),
                given=_given(parts[0].facts),
            )
        )
    return sorted(found, key=lambda one: -one.share)


def _library(facts: Mapping[str, Any]) -> str:
    """Return the package of a transform's class, such as `torchvision`; empty if unknown."""
    kind = facts.get("class")
    return kind.partition(".")[0] if isinstance(kind, str) and "." in kind else ""


def _given(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known facts about a call's input and filter: shape, dtype, mode, class.

    An older doctor stores the input in a call's `arguments`.
    """
    arguments = facts.get("arguments")
    first = arguments[0] if isinstance(arguments, list) and arguments else None
    found: dict[str, Any] = {}
    for one in (facts, facts.get("image"), first):
        if isinstance(one, dict):
            known = {key: one[key] for key in ("shape", "dtype", "mode", "format") if key in one}
            found |= known if one is not facts else {key: known[key] for key in known if key in ("mode", "format")}
    gives = facts.get("gives")
    if not found and isinstance(gives, list) and len(gives) == 3 and gives[0] in ("tensor", "ndarray"):
        found |= dict(zip(("shape", "dtype"), gives[1:], strict=True))
    named = facts.get("filter")
    kind = named.get("class", named.get("type")) if isinstance(named, dict) else None
    return found | ({"filter": kind} if isinstance(kind, str) else {})
