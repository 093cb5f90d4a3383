"""A whole diagnosis of a command: attach, observe, read, analyse, report."""
