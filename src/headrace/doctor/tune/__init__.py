"""headrace tune: the doctor with its candidates limited to DataLoader arguments."""

from __future__ import annotations
