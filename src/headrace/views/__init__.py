"""Views: which window of a source becomes the output."""
