"""`layerwise save`: a model under a plan, or layers of several models, written as an ordinary checkpoint."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from layerwise.bounded import named
from layerwise.data.model_location import is_gguf
from layerwise.errors import ModelError, OptionError
from layerwise.results.run import MANIFEST
from layerwise.runner.experiment import Action, Reads
from layerwise.runner.option import option
from layerwise.runner.options.common import Dtype, LoadingOptions
from layerwise.runner.options.plans import chosen_plan
from layerwise.runner.reporter import Reporter


@dataclass(frozen=True, kw_only=True)
class Saving(LoadingOptions, Action):
    """Write a model under a plan as an ordinary checkpoint.

    The layers may be those of several models. The tensors are streamed from file to file, and below 2 GB the checkpoint
    is loaded again and compared with the plan before the folder gets its name; the tokenizer goes along. Groups and
    halves of layers need --compact, which stores every layer once and the plan beside them. Several models are called
    a, b, c, ... in the order given. Of a GGUF file another one is written without quantizing again, or a folder, which
    needs no plan.
    """

    VERB: ClassVar = "save"
    EXAMPLES: ClassVar = (
        'demo --plan "0-3 6-11" --output shallow',
        'org/name --plan "0-11 8-31" --output deeper',
        'FOLDER1 FOLDER2 --plan "a:0-5 b:6-11" --output merged',
        "--from mergekit.yml --output merged",
        'demo --plan "0-5 [4-7]*2 8-11" --compact --output looped',
        'model.gguf --plan "0-13 15-16 18-29" --output smaller.gguf',
        "model.gguf --output folder",
    )
    READS: ClassVar = (
        Reads(
            ("tokenizer", "layers", "revision", "trust_remote_code"),
            lambda config: not config.takes_several,
            "one model reads it, and several were given",
        ),
        Reads(("arm",), lambda config: config.takes_several, "it selects among several models, and one was given"),
        Reads(("arm", "layers"), lambda config: config.recipe is None, "a recipe says which models"),
        Reads(
            (
                "tokenizer",
                "layers",
                "revision",
                "dtype",
                "compact",
                "remote_code",
                "max_shard_size",
                "push",
                "trust_remote_code",
                "device",
            ),
            lambda config: not is_gguf(config.output),
            "a GGUF file is written of the bytes of another one",
        ),
    )

    models: tuple[str, ...] = option(
        (),
        help="Hub ids, folders, GGUF, runs of `layerwise train robust`, demo or demo-vit.",
        metavar="MODEL",
        positional=True,
        repeated=True,
        is_location=True,
    )
    plan: str | None = option(
        None, 'Which layers, in which order: "0-3 6-11"; or the run of a search.', metavar="PLAN", empty=True
    )
    recipe: str | None = option(None, "In place of --plan: a file of mergekit's YAML.", metavar="FILE", flag="--from")
    output: Path = option(metavar="FOLDER")
    arm: str | None = option(None, metavar="NAME", rare=True)
    overwrite: bool = option(False)
    prove: bool | None = option(
        None,
        "Compare the logits with the plan's; by default below 2 GB. --no-prove leaves out the keys, too.",
        rare=True,
    )
    compact: bool = option(False, "Store each layer once, and the plan, which layerwise.load runs.")
    remote_code: bool = option(
        False,
        "Add code with which transformers runs the plan, or an ELC model, where layerwise is not installed.",
        rare=True,
    )
    max_shard_size: str = option("50GB", "Largest file of weights.", metavar="SIZE", setting=True)
    dtype: Dtype = option("auto", rare=True)
    card: bool = option(False, "Write a model card, README.md, beside the weights.", rare=True)
    evidence: tuple[str, ...] = option(
        (),
        "Run of a search or a sweep whose rows of this plan stand in the card.",
        metavar="RUN",
        repeated=True,
        rare=True,
    )
    push: str | None = option(None, metavar="ORG/NAME", rare=True)
    private: bool = option(False, "Make that a private repository.", rare=True, needs="push")
    trust_remote_code: bool = option(False, rare=True)

    @property
    def takes_several(self) -> bool:
        return len(self.models) > 1 or any(
            (Path(location).expanduser() / MANIFEST).is_file() for location in self.models
        )

    @property
    def converts_gguf(self) -> bool:
        return self.plan is None and self.recipe is None and len(self.models) == 1 and is_gguf(self.models[0])

    def check(self) -> None:
        bytes_of(self.max_shard_size)
        if self.converts_gguf:
            return
        if (self.plan is None) == (self.recipe is None):
            raise OptionError("say which layers by --plan PLAN or by --from FILE, and by one of them")
        if self.push is not None:
            from layerwise.checkpoint.push import check_repository

            check_repository(self.push)
        if self.recipe is not None:
            from layerwise.runner.foreign_plans import read_recipe

            read_recipe(self.recipe)
            return
        chosen_plan(self.plan or "")
        if not self.models:
            raise OptionError("a model is needed: layerwise save MODEL --plan PLAN --output FOLDER")

    RUNS = "save.steps:save_checkpoint"


def bytes_of(size: str) -> int:
    """A size in bytes. Raises `OptionError` for a text that is none.

    >>> bytes_of("5GB"), bytes_of("250 MB")
    (5000000000, 250000000)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(KB|MB|GB|TB)", size.upper(), re.ASCII)
    if match is None or not float(match[1]):
        raise OptionError(f"--max-shard-size takes a size such as 5GB or 500MB; found {named(repr(size))}")
    return int(float(match[1]) * 1000 ** (1 + ("KB", "MB", "GB", "TB").index(match[2])))


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
        if self.output.exists() and (not self.output.is_dir() or any(self.output.iterdir())):
            raise ModelError(f"{self.output} exists already and is not empty; name a new folder with --output")

    def act(self, reporter: Reporter) -> int:
        """Convert the checkpoint; raises what `layerwise.models.convert_elc` raises."""
        from layerwise.data.text.tokenizer import load_tokenizer
        from layerwise.models import convert_elc
        from layerwise.models.elc.convert import read_checkpoint
        from layerwise.runner.opening import quiet_transformers

        quiet_transformers()
        tokenizer = load_tokenizer(self.tokenizer)
        model = convert_elc(read_checkpoint(self.file), variant=self.variant, heads=self.heads, tokenizer=tokenizer)
        model.save_pretrained(self.output)
        tokenizer.save_pretrained(self.output)
        reporter.result(f"{self.output}: {self.variant}, {model.num_parameters():,} parameters")
        return 0
