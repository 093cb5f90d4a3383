"""Files on disk: reads at offsets, atomic writes, named arrays and sidecars, paths and patterns."""
