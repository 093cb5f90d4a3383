"""Second implementations of what the core computes, in numpy and plain Python, from its documentation.

Tests hold the two equal bit for bit.
"""
