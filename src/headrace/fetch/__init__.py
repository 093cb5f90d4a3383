"""Prefetch of bytes from remote objects: the plan shows which samples the next steps need.

Used by `loader`. Read `ahead.py` and `read_groups.py` first.
"""

from headrace.fetch.ahead import FetchAhead
from headrace.fetch.fetch_stats import FetchStats
from headrace.fetch.parts import FetchCancelled
from headrace.fetch.read_forecast import ReadForecast, forecast, global_order_report
from headrace.fetch.read_groups import check_window_memory

__all__ = [
    "FetchAhead",
    "FetchCancelled",
    "FetchStats",
    "ReadForecast",
    "check_window_memory",
    "forecast",
    "global_order_report",
]
