"""`map=` in processes: workers read and write a batch in memory that they share with the loader."""
