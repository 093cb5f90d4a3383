"""IndexedTar and IndexedZip: archives that are read at random, from any process."""
