"""Command-line verbs other than the doctor: bench, demo, index, peek, stage.

Used by the command `headrace`. Read `command_line.py` and `dataset_commands.py` first.
"""
