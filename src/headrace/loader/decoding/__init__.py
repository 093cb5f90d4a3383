"""How each kind of field becomes part of a batch: pixels, arrays, texts, boxes and masks."""
