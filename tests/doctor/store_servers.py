"""The store on loopback of tests/remote, for tests of the doctor."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "remote"))

from servers import KEY_ID, SECRET, StoreServer, running_store  # found there

__all__ = ["KEY_ID", "SECRET", "StoreServer", "running_store"]
