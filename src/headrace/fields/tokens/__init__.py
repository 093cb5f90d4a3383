"""Text columns and the tokenizers that encode them as token ids."""
