"""A session: everything that one diagnosis measured, read from evidence files and stored as one JSON document."""
