"""The way of a batch from host memory to the device."""
