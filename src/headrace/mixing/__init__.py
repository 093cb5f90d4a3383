"""Several loaders as one, in exact proportions."""

from headrace.mixing.mixed_loader import MixedLoader
from headrace.mixing.mixing import mix

__all__ = ["MixedLoader", "mix"]
