"""cached: around a map-style Dataset, keeps what is the same each time a sample is made.

dataset (keeps and augments) → encoding (samples as bytes) → headrace.cache (bytes by number)
"""
