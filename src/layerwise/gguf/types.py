"""The types of values and of tensors that GGUF files name by numbers, with their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

UINT32, STRING, ARRAY = 4, 8, 9
"""Types of values with a meaning of their own here: the unsigned number of settings, text, and a list of one type."""

SCALARS: Mapping[int, str] = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The types of values of one size, as the module `struct` writes them."""


class GGMLType(NamedTuple):
    """How numbers are stored: `values` of them in a block of `size` bytes."""

    name: str
    values: int
    size: int


TENSOR_TYPES: Mapping[int, GGMLType] = {
    number: GGMLType(*each)
    for number, each in {
        0: ("F32", 1, 4),
        1: ("F16", 1, 2),
        2: ("Q4_0", 32, 18),
        3: ("Q4_1", 32, 20),
        6: ("Q5_0", 32, 22),
        7: ("Q5_1", 32, 24),
        8: ("Q8_0", 32, 34),
        10: ("Q2_K", 256, 84),
        11: ("Q3_K", 256, 110),
        12: ("Q4_K", 256, 144),
        13: ("Q5_K", 256, 176),
        14: ("Q6_K", 256, 210),
        16: ("IQ2_XXS", 256, 66),
        17: ("IQ2_XS", 256, 74),
        18: ("IQ3_XXS", 256, 98),
        19: ("IQ1_S", 256, 50),
        20: ("IQ4_NL", 32, 18),
        21: ("IQ3_S", 256, 110),
        22: ("IQ2_S", 256, 82),
        23: ("IQ4_XS", 256, 136),
        24: ("I8", 1, 1),
        25: ("I16", 1, 2),
        26: ("I32", 1, 4),
        27: ("I64", 1, 8),
        28: ("F64", 1, 8),
        29: ("IQ1_M", 256, 56),
        30: ("BF16", 1, 2),
        34: ("TQ1_0", 256, 54),
        35: ("TQ2_0", 256, 66),
        39: ("MXFP4", 32, 17),
        40: ("NVFP4", 64, 36),
        41: ("Q1_0", 128, 18),
    }.items()
}
"""The types of tensors in files, as ggml numbers them. The numbers between are of types that are computed with and not
stored (Q8_1, Q8_K), and of types that ggml has removed."""
