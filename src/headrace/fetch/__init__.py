"""Bytes of remote objects, fetched before the loader needs them: the plan of the steps knows what comes."""

from headrace.fetch.ahead import FetchAhead, FetchCancelled
from headrace.fetch.fetch_stats import FetchStats
from headrace.fetch.read_groups import check_window_memory

__all__ = ["FetchAhead", "FetchCancelled", "FetchStats", "check_window_memory"]
