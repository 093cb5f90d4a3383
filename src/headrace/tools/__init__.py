"""Verbs of the command line besides the doctor: bench, demo, index, peek, stage, unpack, tune."""
