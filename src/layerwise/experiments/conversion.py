"""`layerwise save convert`: a published checkpoint of ELC-BERT or LTG-BERT as a model folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from layerwise.errors import ModelError
from layerwise.experiments.experiment import Action
from layerwise.experiments.option import option
from layerwise.experiments.reporter import Reporter


@dataclass(frozen=True, kw_only=True)
class Conversion(Action):
    """Write a published checkpoint of ELC-BERT or LTG-BERT as a folder that transformers opens.

    Nothing but tensors is read from the file. Which of the published files it was trained with cannot be seen in it, so
    --variant names it.
    """

    VERB: ClassVar = "save convert"
    EXAMPLES: ClassVar = ("FILE --variant elc --tokenizer FOLDER --output elc",)

    file: Path = option(help="The checkpoint: safetensors, or torch's .bin or .pt.", metavar="FILE", positional=True)
    variant: Literal["elc", "elc-base", "zero", "normalized", "weighted-output", "ltg"] = option(
        help="The published model file that the checkpoint was trained with."
    )
    tokenizer: str = option(metavar="PATH", is_location=True)
    output: Path = option(metavar="FOLDER")
    heads: int | None = option(
        None, "Attention heads; by default one for each 64 of the width.", metavar="N", least=1, setting=True
    )

    def check(self) -> None:
        """Raise `ModelError` for a folder that is not empty."""
        if self.output.exists() and (not self.output.is_dir() or any(self.output.iterdir())):
            raise ModelError(f"{self.output} exists already and is not empty; name a new folder with --output")

    def act(self, reporter: Reporter) -> int:
        """Convert the checkpoint; raises what `layerwise.models.convert_elc` raises."""
        from layerwise.data.text.tokenizer import load_tokenizer
        from layerwise.experiments.opening import quiet_transformers
        from layerwise.models import convert_elc
        from layerwise.models.elc.convert import read_checkpoint

        quiet_transformers()
        tokenizer = load_tokenizer(self.tokenizer)
        model = convert_elc(read_checkpoint(self.file), variant=self.variant, heads=self.heads, tokenizer=tokenizer)
        model.save_pretrained(self.output)
        tokenizer.save_pretrained(self.output)
        reporter.result(f"{self.output}: {self.variant}, {model.num_parameters():,} parameters")
        return 0
