"""Causes of data stalls, one file each: how it is detected and said, and what would remedy it."""

from __future__ import annotations

from .findings import diagnose

__all__ = ["diagnose"]
