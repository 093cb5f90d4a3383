"""Bytes of remote objects, fetched before the loader needs them: the plan of the steps knows what comes."""
