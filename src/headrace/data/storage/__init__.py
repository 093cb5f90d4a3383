"""Files on disk: read at offsets, written atomically, named arrays and sidecars in them, paths and patterns."""
