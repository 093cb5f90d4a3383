"""`map=` in processes: native threads decode into memory that the workers see, and workers write into the batch."""

from headrace.feed.map_workers.workers import MapWorkers

__all__ = ["MapWorkers"]
