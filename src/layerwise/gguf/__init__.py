"""GGUF, the file format of llama.cpp: its metadata and tensors as ranges of bytes, and its layers in another order.

types    the types of values and of tensors, with their sizes
file     one file, read within bounds; everything that it says of itself is checked first
layers   its layers for the visits of a plan: the names of tensors, and the metadata that counts layers
"""

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
