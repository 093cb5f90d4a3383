"""Headrace against torch's DataLoader with Pillow, on your own files, at equal cores and output."""
