"""Samples of batch k of epoch e: pure functions of an order, without I/O, threads or a clock.

Only `plan_of` reads: it asks the dataset for the sizes and lengths that a Loader's buckets, budget and packing need.

Used by `loader` and the samplers of `dropins`. Read `uniform_plan.py` and `order.py` first.
"""

from __future__ import annotations

from headrace.plan.batching import Buckets, Budget, SequencePacking
from headrace.plan.bucket_members import ListedMembers
from headrace.plan.image_plan import ImagePlan
from headrace.plan.loader_plan import ViewedImages, plan_of, text_of_buckets, text_packed
from headrace.plan.mixture import MIXTURE_VERSION, EpochPlan, Mixture, SourceBatches, SourceSamples, Until, counts_of
from headrace.plan.next_use import Eviction, NextUses, NodeRanks, can_plan_uses, choose_eviction
from headrace.plan.order import BatchPlan, Order, PackedRows, Remainder, check_int, epoch_key
from headrace.plan.sampling import RepeatFactor, Sampling
from headrace.plan.shaped_plan import ShapedPlan, bucket_plan
from headrace.plan.state import State, check_state, resume, resume_samples, state_after, state_at
from headrace.plan.step_views import StepView, output_sizes
from headrace.plan.token_costs import CountedImages
from headrace.plan.uniform_plan import ReadGroup, SamplePlan, UniformPlan, reads_by_step
from headrace.plan.windowed import (
    ShuffleOrder,
    Windowed,
    WindowedEpoch,
    WindowShape,
    mean_sample_bytes,
    windowed_of,
)
