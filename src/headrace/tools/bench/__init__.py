"""Benchmark of Headrace against torch's DataLoader with Pillow, on the user's files, at equal cores and output."""
