"""Sources that `open` takes besides archives and manifests: folders, COCO, tables and samples in memory."""
