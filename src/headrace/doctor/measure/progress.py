"""Expected time of a diagnosis."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.doctor.probe import SETTLING_STEPS, ProbeSettings, observed_steps, replayed_steps
from headrace.doctor.quantities import counted, duration

USUAL_WARMUP = 10
"""Usual warm-up when the probe chooses it: the queue of two workers, and the settling steps."""
USUAL_STEP_S = 0.1
REPORT_S = 6.0
"""Usual seconds of survey, simulations and report together."""
STARTED_AGAIN_S = 60.0
"""Time limit of a second start of the command that only looks at its samples."""
FEWEST_OBSERVED, MOST_SUGGESTED = 3, 40


@dataclass(frozen=True)
class DiagnosisPlan:
    """Settings of a run, and what follows it."""

    settings: ProbeSettings
    trial_s: float = 0.0
    """Seconds for Headrace's Loader; 0 if it is not tried."""
    prove_s: float = 0.0
    """Maximum seconds for proofs."""

    @property
    def usual_s(self) -> float:
        """Seconds from the script's start to the report, without proofs, at the usual step."""
        asked, step_s = self.settings, USUAL_STEP_S
        replayed = replayed_steps(asked.replay, asked.steps, step_s)
        replay_s = (SETTLING_STEPS + replayed) * step_s if replayed else 0.0
        warmup = USUAL_WARMUP if asked.warmup is None else asked.warmup
        observed = observed_steps(asked.steps, step_s) if asked.enough else asked.steps
        run_s = (warmup + observed) * step_s + 2 * replay_s + min(asked.drain_s, replayed * step_s)
        return run_s + self.trial_s + REPORT_S

    def text(self) -> str:
        """Return one line for the start of the run."""
        steps, replay = self.settings.steps, self.settings.replay
        parts = [f"{counted(steps, 'step')} as they are"]
        if replay:
            parts += [f"{2 * replayed_steps(replay, steps, USUAL_STEP_S)} on cached batches", "the loader alone"]
        if self.trial_s:
            parts.append("Headrace's Loader on the run's files")
        again = f"; up to {STARTED_AGAIN_S:.0f} s more if it ends before a look at its samples" if self.trial_s else ""
        proofs = f", then proofs for up to {self.prove_s:.0f} s" if self.prove_s else ""
        at = duration(USUAL_STEP_S * 1e6)
        return f"{about(self.usual_s)} after the script's start if a step takes {at}: {', '.join(parts)}{proofs}{again}"


def about(seconds: float) -> str:
    """Return an estimated time with few digits: `about 40 s`, `about 3 min`."""
    if seconds < 90:
        return f"about {max(round(seconds / 5) * 5, 5)} s"
    return f"about {round(seconds / 60)} min"


def options_for(steps: int) -> str:
    """Return the option that leaves room for cached batches in a run of `steps` steps; empty if none does."""
    for windows in (2, 1):  # the second one with the workers running
        for observed in range(MOST_SUGGESTED, FEWEST_OBSERVED - 1, -1):
            replayed = SETTLING_STEPS + replayed_steps(MOST_SUGGESTED, observed, 0.0)
            if USUAL_WARMUP + observed + windows * replayed <= steps:
                return f"--steps {observed}"
    return ""
