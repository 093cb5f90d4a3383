"""What was measured, as one document."""
