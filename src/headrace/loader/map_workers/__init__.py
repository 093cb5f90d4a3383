"""`map=` in processes: workers read and write a batch in memory that they share with the loader."""

from __future__ import annotations

from headrace.loader.map_workers.pool import MapWorkers

__all__ = ["MapWorkers"]
