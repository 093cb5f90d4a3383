"""Drop-ins for PyTorch code that keeps its own Dataset and DataLoader. Each works alone, in one or two lines."""
