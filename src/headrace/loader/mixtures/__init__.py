"""Several loaders as one, in exact proportions."""

from headrace.loader.mixtures.mixed_loader import MixedLoader
from headrace.mixing.mixing import mix

__all__ = ["MixedLoader", "mix"]
