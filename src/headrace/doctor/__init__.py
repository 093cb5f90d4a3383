"""Says what a training run waits for, without a change to it."""
