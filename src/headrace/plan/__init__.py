"""Which samples are in batch k of epoch e: pure functions of an order, without I/O, threads or a clock."""

from __future__ import annotations

from headrace.plan.batch_cutting import BudgetCapacity, Capacity, FixedCapacity
from headrace.plan.best_fit import LengthOrder
from headrace.plan.bucket_members import BucketPlan, CodedMembers, ListedMembers, Membership, OneBucket
from headrace.plan.loader_plan import ViewedImages, plan_of, text_of_buckets, text_packed
from headrace.plan.mixture import MIXTURE_VERSION, Mixture, SourceBatches, SourceSamples, Until, counts_of
from headrace.plan.order import BatchPlan, EpochPlan, Order, PackedRows, Remainder, UniformPlan
from headrace.plan.packed_plan import PackedPlan
from headrace.plan.shaped_plan import ShapedPlan
from headrace.plan.state import Resume, State, resume, state_after, state_at
from headrace.plan.step_views import StepView, StepViews
from headrace.plan.uniform_plan import SamplePlan, resume_samples

__all__ = [
    "MIXTURE_VERSION",
    "BatchPlan",
    "BucketPlan",
    "BudgetCapacity",
    "Capacity",
    "CodedMembers",
    "EpochPlan",
    "FixedCapacity",
    "LengthOrder",
    "ListedMembers",
    "Membership",
    "Mixture",
    "OneBucket",
    "Order",
    "PackedPlan",
    "PackedRows",
    "Remainder",
    "Resume",
    "SamplePlan",
    "ShapedPlan",
    "SourceBatches",
    "SourceSamples",
    "State",
    "StepView",
    "StepViews",
    "UniformPlan",
    "Until",
    "ViewedImages",
    "counts_of",
    "plan_of",
    "resume",
    "resume_samples",
    "state_after",
    "state_at",
    "text_of_buckets",
    "text_packed",
]
