"""Thread_loader."""
