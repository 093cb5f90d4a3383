"""Tars and zips: members, indexed once, as samples and as files by name."""
