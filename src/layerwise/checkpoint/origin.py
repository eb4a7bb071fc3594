"""What a written checkpoint is: its plan, the models it is made of, and how far it was proved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

FILE = "plan.json"
"""What the plan was, and whose weights, beside the weights."""

Proof: TypeAlias = Literal["logits", "keys", "none"]
"""What of a written checkpoint was compared: its logits with the plan's; its keys and shapes with those that
transformers expects; or nothing but the headers of its files."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a written model comes from: its plan, and the weight hash of each model by its name in the plan.

    The model at hand, whose parts that are no layers were taken, is called `shell`. `parameters` counts the new
    model's. `gap` is how far its logits are from those of the plan, over the batch it was checked on: the largest
    difference of a token's logits by its norm, beside the norm of its logits; it is `None`, and there are no hashes of
    weights, where no logits were compared. `head` is the name of the model whose parts behind the layers were taken, if
    that is not the model at hand. `note` says why a model was built in memory that might have been streamed.
    """

    plan: str
    models: Mapping[str, str]
    weights: Mapping[str, str]
    parameters: int
    gap: float | None
    proof: Proof = "logits"
    compact: bool = False
    note: str = ""
    head: str | None = None

    def write(self, folder: Path) -> None:
        """Write it to its file in `folder`."""
        (folder / FILE).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
