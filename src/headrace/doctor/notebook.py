"""`with watch():` around a training loop in this process, for notebooks."""
