"""Layers of several models in one.

assignment   which model lends which layer: drawn at random, as plans over sources
checkpoint   any plan of whole layers as an ordinary model folder, proved before it gets its name
ensemble     the mean of logits
lenders      the models in folders and runs, and whether they are of one base
study        members, merged models and ensembles, judged on the same images
"""

from layerwise.merge.assignment import assignments
from layerwise.merge.checkpoint import Origin, save
from layerwise.merge.ensemble import mean_logits
from layerwise.merge.study import merging

__all__ = ["Origin", "assignments", "mean_logits", "merging", "save"]
