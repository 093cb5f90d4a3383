"""What is looked up on the machine once the command has ended: its files, places for them, and what they take to read."""
