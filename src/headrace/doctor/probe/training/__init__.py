"""The windows of a measured run after the one that observes: what the step and the loader do without each other."""
