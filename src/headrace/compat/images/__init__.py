"""decode_image, ImageReader and read_images: the core's decoding for a Dataset of one's own."""
