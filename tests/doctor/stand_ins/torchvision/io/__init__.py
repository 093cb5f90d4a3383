from .image import decode_image, read_file, read_image

__all__ = ["decode_image", "read_file", "read_image"]
