"""Supported and refused model types, from `zoo.yaml`."""

from pathlib import Path
from typing import Any

import yaml

from contracts.specimen import Refusal, Specimen, specimen

_TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("zoo.yaml").read_text(encoding="utf-8"))

DECODERS = tuple(specimen("decoder", **row) for row in _TABLE["decoder"])
SUPPORTED = tuple(
    sorted(
        (*DECODERS, *(specimen(kind, **row) for kind in ("encoder", "vision", "audio") for row in _TABLE[kind])),
        key=lambda one: one.model_type,
    )
)
POPULAR: dict[str, str] = _TABLE["popular"]
REFUSED = tuple(
    Refusal(specimen(**{name: value for name, value in row.items() if name != "reason"}), row["reason"])
    for row in _TABLE["refused"]
)


def named(model_type: str) -> Specimen:
    return next(one for one in SUPPORTED if one.model_type == model_type)
