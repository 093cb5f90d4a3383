"""Map_workers."""
