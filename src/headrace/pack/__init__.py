"""Write datasets as tar shards whose members any tool reads and the core decodes quickly.

`pack` converts and writes, `pack_on_ray` on many machines; `verify` checks every byte, `describe` summarises. Tools
import from here.

Used by `tools` (`headrace pack`). Read `packing.py` and `conversion.py` first.
"""

from __future__ import annotations

from headrace.pack.conversion import DENSE, Form, PackOptions
from headrace.pack.members import schema_of
from headrace.pack.packing import PackReport, pack, sample_pool
from headrace.pack.ray_driver import pack_on_ray
from headrace.pack.trial import TrialReport, try_out
from headrace.pack.verification import PackSummary, describe, merge, verify
