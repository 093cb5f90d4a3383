"""Headrace against torch's DataLoader with Pillow, on the user's own files, at equal cores and output.

settings     what is compared (a frozen description) and how many batches a run takes (pure)
own, peer    the two loaders, as iterators over batch sizes
listing      which files the peer reads
measure      one run: a clock, CPU time and memory around an iterator of batches
processes    CPU time and memory of a process and its children, from /proc
worker       one run as a process of its own, which prints one line of JSON
preflight    what must hold before anything is timed
rounds       runs the workers in turn
result       medians, ratios, the verdict and the JSON document (pure)
table        the same for a terminal
against      a loader of the user's, in the peer's place
comparisons  what may not pay on a machine, and what its figures say (pure)
sides        the two sides of each, as iterators over batch sizes
worth        runs the sides in turn
worth_table  what pays, for a terminal
environment  what the figures were measured on
"""
