"""Bytes of remote objects, fetched before the loader needs them: the plan of the steps knows what comes."""

from headrace.fetch.ahead import FetchAhead, FetchCancelled, FetchStats

__all__ = ["FetchAhead", "FetchCancelled", "FetchStats"]
