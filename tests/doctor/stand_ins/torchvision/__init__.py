"""Stands in for torchvision where it is not installed: the modules, classes and calls that the probe hooks, in the same
places and of the same kinds. What they compute is not torchvision's."""
