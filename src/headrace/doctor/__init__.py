"""Doctor for data stalls: it reports what a training script waits for, and leaves the script unchanged."""

from __future__ import annotations
