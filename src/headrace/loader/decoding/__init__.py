"""Conversion of each kind of field to its part of a batch: pixels, arrays, texts, boxes and masks."""
