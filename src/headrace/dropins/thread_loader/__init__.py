"""ThreadDataLoader: torch's DataLoader on threads."""
