"""Finds a plain DataLoader's arguments for an unmodified script: a measured run, predictions, and a few short runs.

arguments   the four arguments, as one value
grid        which values are worth a thought on this machine, and why others are not (pure)
search      which of them to run next, and which one to take, by predictions and measurements (pure)
looked      the measured run: what it tells of the loader, and what is predicted from it
trials      the runs with other arguments, within a number and a time
advice      the line to paste, and what does not pay (pure)
result      all of a tuning, and its JSON document (pure)
report      the same for a terminal
run         from the command line to the exit status
"""
