"""GGUF files of llama.cpp: metadata and tensors as byte ranges, and their layers in another order."""

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
