"""Reading of the user's batches, datasets and samples, without changes to them.

- `leaves`: one walk over a nested batch; shapes and padding.
- `digests`, `first_batches`: what runs, workers and ranks are compared by.
- `objects`: attributes and members of live objects, descriptions of loaders, and states of random generators.
- `column_sources`, `columns`: sequences with a value, or an image, for each sample.
- `held_objects`: transforms and tokenizers that a loader holds, and what the user's own make of texts.
- `raw_samples`, `value_trace`: samples as stored, and what making one decodes.
- `value_look`: the inspection of a loader's samples that uses all of these.
"""
