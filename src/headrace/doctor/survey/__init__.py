"""What is looked up once the command has ended: its files, places for them, and what they take to read."""
