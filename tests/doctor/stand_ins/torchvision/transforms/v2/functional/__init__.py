from ._geometry import resize
from ._utils import register_kernel

__all__ = ["register_kernel", "resize"]
