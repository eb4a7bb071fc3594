"""What was published, to compare shapes with: accuracy of ViT-B/16 on ImageNet, in order and in random order (percent).

Numbers of the LayerShuffle paper. Another model, other images and far more training: what may be compared is which arm
keeps its accuracy and which loses it, not the digits.
"""

from __future__ import annotations

SOURCE = "LayerShuffle paper, ViT-B/16 on ImageNet"
PUBLISHED: dict[str, tuple[float, float]] = {
    "baseline": (82.61, 0.13),
    "layershuffle": (75.22, 62.77),
    "layershuffle-position": (75.28, 63.61),
    "layershuffle-predict": (74.41, 61.18),
}

PUBLISHED_SPREAD: dict[str, tuple[float, float]] = {
    "baseline": (0.08, 0.03),
    "layershuffle": (0.28, 0.41),
    "layershuffle-position": (0.18, 0.23),
    "layershuffle-predict": (0.20, 1.06),
}
"""The standard deviations over five models beside them."""
