"""Mixtures: several loaders as one, in exact proportions."""
