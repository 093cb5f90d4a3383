"""Turns `buckets=`, `pack=`, `batch_size=` and a RandomScale into a plan, by what the dataset says of its samples."""

from headrace.grouping.order import Order
from headrace.grouping.packing import text_packed
from headrace.plan.loader_plan import Images, plan_of, text_of_buckets

__all__ = ["Images", "Order", "plan_of", "text_of_buckets", "text_packed"]
