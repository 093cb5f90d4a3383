"""`ThreadDataLoader`: torch's DataLoader on threads."""

from __future__ import annotations
