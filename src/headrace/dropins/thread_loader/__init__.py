"""`ThreadDataLoader`: torch's DataLoader with threads as workers."""

from __future__ import annotations
