"""Archives to files: path-safe, in parallel, resumable, verified.

archive → plan (what is made where; pure) → target (puts it there, complete or not at all)
"""

from headrace.unpack.report import Report
from headrace.unpack.unpacking import unpack

__all__ = ["Report", "unpack"]
