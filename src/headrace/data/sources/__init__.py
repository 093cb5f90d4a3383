"""Sources of `open` other than archives and manifests: folders, COCO, tables and samples in memory."""
