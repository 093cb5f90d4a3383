from . import functional
from ._transform import Compose, RandomApply, Resize, Transform

__all__ = ["Compose", "RandomApply", "Resize", "Transform", "functional"]
