"""Measurements derived from the evidence, once for all reports: steps, waits, batch production, ranks and hosts."""

from __future__ import annotations

from headrace.doctor.measure.batches import (
    REST,
    SERIALISE,
    Join,
    MadeBatch,
    batch_rows,
    batch_stages,
    tensors_of,
    with_loaders_as_one,
)
from headrace.doctor.measure.diagnosis import (
    Diagnosis,
    Finding,
    LoaderProduction,
    ProbeCost,
    RankView,
    StagePart,
    Statement,
    StepBudget,
    TimePart,
    WaitSplit,
)
from headrace.doctor.measure.host import Host, host_of, hosts
from headrace.doctor.measure.lower_bounds import (
    LEAST_GAIN,
    LowerBounds,
    interval,
    is_gain,
    is_valid,
    lower_bounds,
    options_for,
    replayed_threads,
    replayed_us,
    why_no_lower_bounds,
)
from headrace.doctor.measure.ranks import RanksTogether, is_late, rank_views, ranks_together, stalls_of_peers_us
from headrace.doctor.measure.steps import (
    BACKWARD,
    BOUND,
    COPY,
    DATA_WORK,
    FORWARD,
    PREFETCH,
    UNSEEN,
    WAIT,
    MeasuredStep,
    MeasuredTraining,
    is_here,
    pass_blocks,
    pass_of,
    training,
    whole_fact,
    window,
)
from headrace.doctor.measure.view import TrainerView, cost, main_view, main_view_of, uses_gpu
from headrace.doctor.measure.waits import (
    HELD_UP,
    MADE_HERE,
    PICKLE,
    PIN,
    SAMPLER,
    SHUT_DOWN,
    START_UP,
    UNKNOWN,
    UNPICKLE,
    WAIT_ORDER,
    late,
    usual_us,
    waited_us,
)
from headrace.doctor.session.trainers import OBSERVE
