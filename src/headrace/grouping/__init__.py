"""Turns `buckets=`, `batch_size=` and a RandomScale into a plan, by what the dataset says of its samples."""

from headrace.grouping.planning import Images, Order, plan_of

__all__ = ["Images", "Order", "plan_of"]
