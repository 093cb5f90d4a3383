from ._image_decoders import decode_image as decode_image
from ._video_decoder import VideoDecoder as VideoDecoder
