"""The steps that ranks took together, on one clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from headrace.doctor.measure.steps import Step
from headrace.doctor.measure.view import View
from headrace.doctor.session.model import Steps


@dataclass(frozen=True)
class Together:
    """Ranks of one training, and the steps that all of them measured: `steps[number]` holds one a rank, in their order.
    `late[rank's place]` is what its host's clock is ahead of the first rank's."""

    views: list[View]
    steps: dict[int, list[Step]]
    ahead: list[float]

    def arrivals(self, number: int) -> list[float] | None:
        """When each rank was ready for the others: its own gradients were done, where that was stamped, else its last
        backward pass began, else its first collective. None where no kind is known of all."""
        kinds = (self._moments(number, moment) for moment in (_ready, _backward, _collective))
        return next((times for times in kinds if times is not None), None)

    def stamped(self, number: int) -> list[float] | None:
        """When the own gradients of each rank were done; None where that is not known of all."""
        return self._moments(number, _ready)

    def _moments(self, number: int, moment: Callable[[Steps, Step, View], float | None]) -> list[float] | None:
        steps = zip(self.views, self.steps[number], strict=True)
        times = [moment(view.trainer.steps, step, view) for view, step in steps]
        known = [time - ahead for time, ahead in zip(times, self.ahead, strict=True) if time is not None]
        return known if len(known) == len(times) else None


def together(views: Sequence[View]) -> Together | None:
    """None with fewer than two ranks, or where they share no step. Of several trainings, the longest of each rank."""
    longest: dict[int, View] = {}
    for view in views:
        rank = view.trainer.rank
        if view.training.unit == "step" and (
            rank not in longest or len(view.training.steps) > len(longest[rank].training.steps)
        ):
            longest[rank] = view
    ranks = [longest[rank] for rank in sorted(longest)]
    steps = _shared([view.training.steps for view in ranks])
    return Together(ranks, steps, _ahead(ranks, steps)) if len(ranks) > 1 and steps else None


def _shared(of_ranks: Sequence[Sequence[Step]]) -> dict[int, list[Step]]:
    by_number = [{step.number: step for step in steps} for steps in of_ranks]
    numbers = set.intersection(*map(set, by_number)) if by_number else set()
    return {number: [steps[number] for steps in by_number] for number in sorted(numbers)}


def _ahead(ranks: Sequence[View], steps: dict[int, list[Step]]) -> list[float]:
    """Steps end at about the same time everywhere, since the ranks wait for one another; the median over all of them
    tells hosts' clocks apart. Ranks of one host share its clock."""
    hosts: dict[str, float] = {ranks[0].trainer.host: 0.0} if ranks else {}
    for place, view in enumerate(ranks):
        if view.trainer.host not in hosts:
            hosts[view.trainer.host] = median(of[place].end - of[0].end for of in steps.values()) if steps else 0.0
    return [hosts[view.trainer.host] for view in ranks]


def _ready(steps: Steps, step: Step, view: View) -> float | None:
    return None if step.row is None else steps.ready[step.row]


def _backward(steps: Steps, step: Step, view: View) -> float | None:
    """The first after the step's last batch: the one that ends an accumulation, in which gradients are shared."""
    last = max((view.trainer.gets.start[row] for row in step.gets), default=step.start)
    return next((start for kind, start, _ in _spans(steps, step) if kind == "b" and start >= last), None)


def _collective(steps: Steps, step: Step, view: View) -> float | None:
    return next((start for kind, start, _ in _spans(steps, step) if kind == "c"), None)


def _spans(steps: Steps, step: Step) -> list[tuple[str, int, int]]:
    return [] if step.row is None else steps.spans[step.row]
