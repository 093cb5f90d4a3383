"""`map=` in processes: native threads decode into memory that the workers see, and workers write into the batch."""

from headrace.loader.map_workers.pool import MapWorkers

__all__ = ["MapWorkers"]
