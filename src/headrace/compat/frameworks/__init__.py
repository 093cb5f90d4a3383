"""Loaders for Accelerate, Lightning and Hugging Face's Trainer."""
