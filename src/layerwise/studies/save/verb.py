"""`layerwise save`: write a model under a plan, or layers of several models, as a standard checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from layerwise.bounded import named
from layerwise.data.model_location import is_gguf
from layerwise.errors import CheckpointError, ModelError, OptionError
from layerwise.plan import Plan
from layerwise.plan.checks import source_name
from layerwise.runner.arguments import Device, Dtype, Flag, Location, Metavar, OnePlan, Range, Rare, Trait
from layerwise.runner.plan_choice import resolve_plan
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.verb import check_push, spell, verb


@verb(
    "save",
    group="Changing",
    examples=(
        'demo --plan "0-3 6-11" --output shallow',
        'FOLDER1 FOLDER2 --plan "a:0-5 b:6-11" --output merged',
        "--from mergekit.yml --output merged",
        'demo --plan "0-5 [4-7]*2 8-11" --compact --output looped',
        'model.gguf --plan "0-13 15-16 18-29" --output smaller.gguf',
        "model.gguf --output folder",
    ),
)
def save(
    *models: Annotated[str | Path, Trait.LOCATION, Metavar("MODEL")],
    output: Annotated[str | Path, Metavar("PATH")],
    plan: OnePlan = None,
    recipe: Annotated[str | None, Flag("--from"), Metavar("FILE")] = None,
    compact: bool = False,
    overwrite: bool = False,
    variant: Rare[str | None] = None,
    prove: Rare[bool | None] = None,
    remote_code: Rare[bool] = False,
    max_shard_size: Rare[str] = "50GB",
    card: Rare[bool] = False,
    evidence: Rare[Annotated[tuple[str, ...], Trait.REPEATED, Trait.LOCATION, Metavar("RUN")]] = (),
    push: Rare[Annotated[str | None, Metavar("ORG/NAME")]] = None,
    private: Rare[bool] = False,
    device: Rare[Device] = "auto",
    dtype: Rare[Dtype] = "auto",
    tokenizer: Rare[Location] = None,
    layers: Rare[str | None] = None,
    revision: Rare[str | None] = None,
    trust_remote_code: Rare[bool] = False,
    reporter: Reporter | None = None,
) -> Path:
    """Write a model under a plan as an ordinary checkpoint.

    Layers can come from several models, named a, b, c, ... in the order given. Tensors are streamed from file to file.
    Checkpoints below 2 GB are loaded again and checked against the plan before the output appears. Groups and sublayers
    require --compact, which stores each layer once, together with the plan. A GGUF file can be written as another GGUF
    file without requantizing, or converted to a folder, which needs no plan.

    Args:
        models: Hub id, folder, GGUF file, run directory of a training run, or demo.
        output: Folder or GGUF file to write.
        plan: Plan to write, or run directory of a search.
        recipe: YAML file of mergekit to use instead of a plan.
        compact: Store each layer once, together with the plan.
        overwrite: Replace an existing model at the output.
        variant: Training variant to write.
        prove: Compare the logits with those of the plan (default: below 2 GB).
        remote_code: Add code that runs the plan without layerwise.
        max_shard_size: Maximum size of a weight file, such as 5GB.
        card: Write a model card.
        evidence: Run directory of a search or sweep to show in the model card.
        push: Hub repo id (a prefix for several models).
        private: Make the hub repository private.
        device: Device: auto, cpu, cuda, mps or xpu.
        dtype: Weight dtype. `auto` keeps the stored one.
        tokenizer: Tokenizer, if the model does not include one.
        layers: Path of the layers, such as model.layers.
        revision: Branch, tag or commit of a hub model.
        trust_remote_code: Run code that comes with the model.
        reporter: Where progress goes (default: the terminal or the notebook).

    Returns:
        The path of the written model.

    Raises:
        OptionError: If options cannot be combined, or if a model or plan is missing.
        ModelError: If an ordinary checkpoint cannot represent the plan.
        CheckpointError: If the output exists, or if the hub would reject it.
    """
    reporter, output, locations = reporter or Silent(), Path(output), [str(each) for each in models]
    plan = _resolve_saved_plan(plan, recipe, locations)
    check_push(push, private=private)
    shard_bytes = parse_size(max_shard_size)
    opening = {"tokenizer": tokenizer, "layers": layers, "revision": revision, "trust_remote_code": trust_remote_code}
    from layerwise.studies.save import steps

    several = recipe is None and steps.takes_several(locations)
    if several:
        _check_unused(opening, "there are several models")
    elif variant is not None:
        _check_unused({"variant": variant}, "there is one model")
    if recipe is not None:
        _check_unused({"layers": layers}, "the recipe names the models")
        planned = steps.read_planned(recipe, locations, dtype=dtype, revision=revision, reporter=reporter)
    elif is_gguf(output):
        names = {source_name(number): location for number, location in enumerate(locations)}
        planned = steps.PlannedModels(resolve_plan(str(plan)), names)
    else:
        planned = steps.choose_models(locations, str(plan), variant, dtype, revision, reporter)
    publication = None
    if card or evidence or push:
        publication = steps.Publication.prepare(
            evidence, planned.plan, planned.names.values(), push=push, private=private, overwrite=overwrite
        )
    if is_gguf(output):
        given = {"compact": compact, "remote_code": remote_code, "push": push, **opening}
        chosen = {"dtype": None if dtype == "auto" else dtype, "device": None if device == "auto" else device}
        _check_unused({**given, **chosen}, "a GGUF file is copied from another one")
        _refuse_card(output, is_written=publication is not None, overwrite=overwrite)
        origin, text = steps.write_gguf(planned, output, overwrite=overwrite, prove=bool(prove))
        reporter.result(text)
        if publication is not None:
            publication.publish(output, reporter, origin)
        return output
    from layerwise.checkpoint.folder import Writing

    writing = Writing(
        folder=output,
        overwrite=overwrite,
        prove=prove,
        layers=layers,
        max_shard_size=shard_bytes,
        compact=compact,
        remote_code=remote_code,
        head=planned.head,
    )
    opened = partial(
        steps.open_stacks,
        reporter=reporter,
        device=device,
        dtype=planned.dtype,
        tokenizer=tokenizer,
        layers=layers,
        revision=planned.revision,
        trust_remote_code=trust_remote_code,
    )
    loaded = {"dtype": planned.dtype != "auto", "tokenizer": tokenizer, "trust_remote_code": trust_remote_code}
    reason = " and ".join(spell(name) for name, value in loaded.items() if value)
    origin = steps.write_folder(planned, writing, opened, f"{reason} was given" if reason else "")
    reporter.result("\n".join(steps.describe_folder(output, planned.plan, origin)))
    if publication is not None:
        publication.publish(output, reporter)
    return output


def _resolve_saved_plan(plan: str | Plan | None, recipe: str | None, locations: Sequence[str]) -> str | Plan | None:
    if plan is None and recipe is None and len(locations) == 1 and is_gguf(locations[0]):
        from layerwise.runner.foreign_plans import read_depth

        plan = Plan.identity(read_depth(locations[0]))
    if (plan is None) == (recipe is None):
        raise OptionError("exactly one of --plan and --from is required. Pass one of them.")
    if plan is not None:
        if not locations:
            raise OptionError("a model is required. Run layerwise save MODEL --plan PLAN --output FOLDER.")
        resolve_plan(str(plan))
    return plan


def _check_unused(options: Mapping[str, object], reason: str) -> None:
    for name, value in options.items():
        if value:
            raise OptionError(f"{spell(name)} has no effect, because {reason}. Remove it.")


def _refuse_card(output: Path, *, is_written: bool, overwrite: bool) -> None:
    path = output.with_suffix(".md")
    if is_written and path.exists() and not overwrite:
        raise CheckpointError(f"{path} already exists. Pass another --output, or pass --overwrite.")


def parse_size(size: str) -> int:
    """Parse a size such as 5GB into bytes.

    >>> parse_size("5GB"), parse_size("250 MB")
    (5000000000, 250000000)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(KB|MB|GB|TB)", size.upper(), re.ASCII)
    if match is None or not float(match[1]):
        raise OptionError(f"{spell('max_shard_size')} must be a size such as 5GB or 500MB, got {named(repr(size))}.")
    return int(float(match[1]) * 1000 ** (1 + ("KB", "MB", "GB", "TB").index(match[2])))


@verb("save convert", group="Changing", examples=("FILE --variant elc --tokenizer FOLDER --output elc",))
def save_convert(
    file: Annotated[str | Path, Metavar("FILE")],
    *,
    variant: Literal["elc", "elc-base", "zero", "normalized", "weighted-output", "ltg"],
    tokenizer: Annotated[str, Trait.LOCATION, Metavar("PATH")],
    output: Annotated[str | Path, Metavar("FOLDER")],
    heads: Rare[Annotated[int | None, Range(least=1)]] = None,
    reporter: Reporter | None = None,
) -> Path:
    """Convert a published ELC-BERT or LTG-BERT checkpoint to a folder that transformers can load.

    Only tensors are read from the file. The file does not record the model variant, so pass it with --variant.

    Args:
        file: Checkpoint file: .safetensors, .bin or .pt.
        variant: Variant of the checkpoint.
        tokenizer: Tokenizer of the checkpoint.
        output: Folder to write.
        heads: Number of attention heads (default: the hidden size divided by 64).
        reporter: Where progress goes (default: the terminal or the notebook).

    Returns:
        The folder.

    Raises:
        ModelError: If the folder is not empty, or if the tensors do not fit the variant.
    """
    output = Path(output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ModelError(f"{output} already exists and is not empty. Pass a new folder with --output.")
    from layerwise.data.text.tokenizer import load_tokenizer
    from layerwise.models import convert_elc
    from layerwise.models.elc.convert import read_checkpoint
    from layerwise.runner.opening import quiet_transformers

    quiet_transformers()
    loaded = load_tokenizer(tokenizer)
    model = convert_elc(read_checkpoint(Path(file)), variant=variant, heads=heads, tokenizer=loaded)
    model.save_pretrained(output)
    loaded.save_pretrained(output)
    (reporter or Silent()).result(f"{output}: {variant}, {model.num_parameters():,} parameters")
    return output
