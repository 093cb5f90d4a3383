"""A look at a data set before it is trained on: a sheet of augmented samples, and a page of what its files are.

`survey` reads samples, `duplicates`, `histogram` and `sheet` make something of them, `page` writes it down.
"""
