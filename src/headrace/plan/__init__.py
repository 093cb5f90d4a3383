"""Which samples are in batch k of epoch e: pure functions, without I/O, threads or a clock."""

from headrace.plan.bucket_members import CodedMembers, Members, OneBucket
from headrace.plan.buckets import BucketMembers, BucketPlan
from headrace.plan.capacity import BudgetCapacity, Capacity, FixedCapacity
from headrace.plan.epoch_plan import EpochPlan
from headrace.plan.length_order import LengthOrder
from headrace.plan.mixture import MIXTURE_VERSION, Mixture, Until
from headrace.plan.order import BatchPlan, Plan, Remainder
from headrace.plan.packed_plan import PackPlan
from headrace.plan.packed_rows import PackedRows
from headrace.plan.resume import Resume, resume
from headrace.plan.shaped_plan import ShapePlan
from headrace.plan.shares import counts_of
from headrace.plan.source_plans import SourceBatches, SourceSamples
from headrace.plan.state import State, state_after, state_at
from headrace.plan.step_views import StepView, StepViews
from headrace.plan.uniform_plan import SamplePlan, resume_samples

__all__ = [
    "MIXTURE_VERSION",
    "BatchPlan",
    "BucketMembers",
    "BucketPlan",
    "BudgetCapacity",
    "Capacity",
    "CodedMembers",
    "EpochPlan",
    "FixedCapacity",
    "LengthOrder",
    "Members",
    "Mixture",
    "OneBucket",
    "PackPlan",
    "PackedRows",
    "Plan",
    "Remainder",
    "Resume",
    "SamplePlan",
    "ShapePlan",
    "SourceBatches",
    "SourceSamples",
    "State",
    "StepView",
    "StepViews",
    "Until",
    "counts_of",
    "resume",
    "resume_samples",
    "state_after",
    "state_at",
]
