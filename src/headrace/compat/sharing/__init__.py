"""shared_list: millions of small items that all workers read, and none copies."""
