"""Objects in stores, read as files: addresses, stores, retries, listings."""
