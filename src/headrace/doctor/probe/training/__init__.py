"""The training thread: its steps, the batches that it receives, and the windows of a measured run."""
