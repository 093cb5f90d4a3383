"""What is derived from evidence, once: steps, waits, how batches were made, ranks and hosts."""
