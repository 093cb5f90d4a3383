"""A small photographic data set to try a loader on: photographs found or drawn, then cut into JPEG files.

sources     where photographs come from: the user's, the system's, a package's, or drawn
natural     images with a natural spectrum and edges, drawn from a seed
cuts        which windows of which photographs become files (pure)
dataset     the files, written once
"""
