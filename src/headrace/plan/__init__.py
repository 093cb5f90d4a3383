"""Which samples are in batch k of epoch e: pure functions, without I/O, threads or a clock."""

from headrace.plan.plan import BatchPlan, Plan, Remainder
from headrace.plan.resume import Resume, resume
from headrace.plan.state import State, state_after

__all__ = ["BatchPlan", "Plan", "Remainder", "Resume", "State", "resume", "state_after"]
