"""One module a loader, all under the contract of task.py."""
