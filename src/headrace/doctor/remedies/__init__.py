"""What to change in a run that waits for data, what each change would gain, and why others would gain nothing."""
