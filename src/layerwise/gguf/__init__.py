"""Read GGUF files of llama.cpp, and reorder their layers."""

from layerwise.gguf.file import CONVERT_AGAIN, GGUFFile, GGUFTensor, MetadataEntry, short_header
from layerwise.gguf.layers import PlannedFile, depth_of, layer_bytes, planned_file

__all__ = [
    "CONVERT_AGAIN",
    "GGUFFile",
    "GGUFTensor",
    "MetadataEntry",
    "PlannedFile",
    "depth_of",
    "layer_bytes",
    "planned_file",
    "short_header",
]
