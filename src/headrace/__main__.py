"""`python -m headrace`, the same as the command `headrace`."""

from headrace.tools.command_line import main

main()
