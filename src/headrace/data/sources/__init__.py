"""What `open` takes beside archives and manifests: folders, COCO, tables and samples in memory."""
