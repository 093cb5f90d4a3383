"""Command-line verbs other than the doctor: bench, demo, index, peek, stage, unpack."""
