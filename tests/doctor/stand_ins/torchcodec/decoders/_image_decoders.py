import torch


def decode_jpeg(source: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(source), dtype=torch.uint8)


def decode_image(source: bytes) -> torch.Tensor:
    return decode_jpeg(source)
