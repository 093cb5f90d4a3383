from .transforms import Compose, RandomApply, Resize, ToTensor

__all__ = ["Compose", "RandomApply", "Resize", "ToTensor"]
