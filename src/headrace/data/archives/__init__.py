"""Tars and zips: their members, indexed once, as samples and as files by name."""
