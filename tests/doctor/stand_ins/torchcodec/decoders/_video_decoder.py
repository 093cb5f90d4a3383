class VideoDecoder:
    def __init__(self, source: str) -> None:
        self.source = source

    def __getitem__(self, key: int) -> int:
        return key

    def get_frames_at(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]
