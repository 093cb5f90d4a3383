"""Which samples are in batch k of epoch e: pure functions, without I/O, threads or a clock."""

from headrace.plan.buckets import BucketPlan, Buckets
from headrace.plan.plan import BatchPlan, Plan, Remainder
from headrace.plan.resume import Resume, resume
from headrace.plan.samples import SamplePlan, resume_samples
from headrace.plan.state import State, state_after, state_at

__all__ = [
    "BatchPlan",
    "BucketPlan",
    "Buckets",
    "Plan",
    "Remainder",
    "Resume",
    "SamplePlan",
    "State",
    "resume",
    "resume_samples",
    "state_after",
    "state_at",
]
