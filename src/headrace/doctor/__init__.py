"""Doctor for data stalls: it reports what a training script waits for, and leaves the script unchanged.

Used by `tools` (`headrace doctor`, `headrace check`). Read `run.py` and `causes/cause.py` first.
"""

from __future__ import annotations
