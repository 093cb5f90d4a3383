"""Changes in the user's own code: found by its syntax tree, made in its text: all else stays as it is."""
