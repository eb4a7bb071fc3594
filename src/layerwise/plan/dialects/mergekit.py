"""Read and write mergekit's YAML for the merge method `passthrough` (checked against mergekit 0.1.5).

The slices `{model: &a org/one, layer_range: [0, 8]}` and `{model: &b org/two, layer_range: [6, 12]}` correspond to the
plan `a:0-7 b:6-11`. The embedding comes from the model of the first slice, the final norm and head from that of the
last. A slice with an empty range such as `[0, 0]` provides only these. Models without anchors are named a, b, c, ... A
`scale` of `o_proj` or `down_proj` becomes a gain of a sublayer, as in `(6.attn):gain=0.5`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from layerwise.errors import PlanError
from layerwise.plan.checks import LAYER_LIMIT, MAX_SOURCE_LENGTH, SOURCE, STEP_LIMIT, SUBLAYERS, source_name
from layerwise.plan.dialects.located import YamlValue, parse_located
from layerwise.plan.dialects.sequence import Gains, ascending_runs, join_sublayers, sequential
from layerwise.plan.plan import Group, Plan, Reduction, Stage, Visit

DTYPES = ("float32", "float16", "bfloat16")
"""Weight dtypes that mergekit writes."""

_FORM = "mergekit's YAML"
# mergekit's filters select tensors by substrings of their names.
_OUTPUTS = ("self_attn.o_proj", "mlp.down_proj")
_INPUTS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
_TENSORS = (*_OUTPUTS, *_INPUTS, "input_layernorm", "post_attention_layernorm", "embed_tokens", "model.norm", "lm_head")
_PLAIN = re.compile(r"/?[A-Za-z0-9_.][A-Za-z0-9_.-]*(/[A-Za-z0-9_.-]+)+(@[A-Za-z0-9_.-]+)?")

# Top-level keys that mergekit reads; it ignores others.
_READ = ("slices", "merge_method", "base_model", "dtype", "out_dtype", "tokenizer_source", "parameters")
_REFUSED = {
    "models": "it merges entire models of unknown depth; write slices, each with its layer_range",
    "modules": "it merges models with several layer stacks; write the slices of one stack at the top level",
    "tokenizer": "vocabularies cannot be merged; omit it to use the tokenizer of the first slice's model",
    "chat_template": "the tokenizer keeps its template; omit it, and set it on the saved tokenizer",
}


@dataclass(frozen=True, slots=True)
class MergeRecipe:
    """A plan and the locations of its models.

    Attributes:
        plan: The layer plan.
        models: Folder or hub id of each model by its name in the plan. The first model provides the embedding.
        head: Name of the model that provides the final norm and head.
        dtype: Weight dtype, or None to keep that of the files.
        notes: Warnings about entries of the file that have no effect.
    """

    plan: Plan
    models: Mapping[str | None, str] = field(default_factory=dict)
    head: str | None = None
    dtype: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def host(self) -> str | None:
        """Name of the model that provides the embedding."""
        return next(iter(self.models), None)


def read_mergekit(text: str) -> MergeRecipe:
    """Parse mergekit's YAML. If a plan cannot express the merge, raise `PlanError` with the line number.

    >>> recipe = read_mergekit('''
    ... merge_method: passthrough
    ... slices:
    ... - sources: [{model: org/one, layer_range: [0, 8]}]
    ... - sources: [{model: org/two, layer_range: [6, 12]}]
    ... ''')
    >>> recipe.plan, dict(recipe.models), recipe.head
    (Plan('a:0-7 b:6-11'), {'a': 'org/one', 'b': 'org/two'}, 'b')
    """
    document = parse_located(text)
    top = document.mapping("a merge configuration")
    for key in ("merge_method", "slices"):
        if key not in top and not any(other in top for other in _REFUSED):
            document.refuse(f"the key {key} is missing; a merge configuration needs slices and a merge_method")
    for key, value in top.items():
        if key in _REFUSED and not value.is_null:
            value.refuse(f"the key {key} is not supported, because {_REFUSED[key]}")
    _check_method(top["merge_method"])
    slices = [_slice(each, top.get("parameters")) for each in top["slices"].items("slices")]
    if not slices:
        top["slices"].refuse("slices must not be empty")
    count = sum(each.stop - each.start for each in slices)
    if not count:
        top["slices"].refuse("the slices have no layers; a layer_range is half-open, so [0, 8] means layers 0 to 7")
    if count > STEP_LIMIT:
        top["slices"].refuse(f"a plan must run at most {STEP_LIMIT:,} layers, but the slices have {count:,}")
    names = _names(slices)
    stages = [
        stage
        for each in slices
        for layer, gains in zip(range(each.start, each.stop), _gains(each.scales, each.stop - each.start), strict=True)
        for stage in _stages(layer, names[each.location], gains)
    ]
    _check_donors(top, list(names))
    return MergeRecipe(
        Plan(tuple(stages)),
        {name: location for location, name in names.items()},
        names[slices[-1].location],
        _dtype(top),
        tuple(_notes(top)),
    )


def split_revision(location: str) -> tuple[str, str | None]:
    """Split a location at its @ into path and revision.

    >>> split_revision("org/name@main"), split_revision("org/name")
    (('org/name', 'main'), ('org/name', None))
    """
    path, _, revision = location.partition("@")
    return path, revision or None


@dataclass(frozen=True, slots=True)
class _Slice:
    location: str
    anchor: str | None
    start: int
    stop: int
    scales: list[YamlValue]


def _stages(layer: int, source: str | None, gains: Gains) -> Iterator[Stage]:
    if set(gains) == {1}:
        yield Visit(layer, source=source)
        return
    for sublayer, gain in zip(SUBLAYERS, gains, strict=True):
        visit = Visit(layer, sublayer=sublayer, source=source)
        yield visit if gain == 1 else Group((Plan((visit,)),), merge=Reduction("gain", gain))


def _slice(value: YamlValue, parameters: YamlValue | None) -> _Slice:
    keys = value.mapping("a slice")
    if "sources" not in keys:
        value.refuse("a slice must have the key sources, a list of one model with its layer_range")
    sources = keys["sources"].items("sources")
    if len(sources) != 1:
        keys["sources"].refuse(f"a slice must have one source, got {len(sources)}; write one slice per source")
    source = sources[0].mapping("a source")
    for key in ("model", "layer_range"):
        if key not in source:
            sources[0].refuse(f"a source must have a model and a layer_range, but {key} is missing")
    given = [each for each in (source.get("parameters"), keys.get("parameters"), parameters) if each is not None]
    scales = [each.mapping("parameters").get("scale") for each in given if not each.is_null]
    start, stop = _range(source["layer_range"])
    location = _location(source["model"])
    return _Slice(location, source["model"].anchor, start, stop, [each for each in scales if each is not None])


def _range(value: YamlValue) -> tuple[int, int]:
    ends = [each.whole("an end of a layer_range") for each in value.items("a layer_range")]
    if len(ends) != 2:
        value.refuse(f"a layer_range must have two ends, such as [0, 8] for layers 0 to 7, got {len(ends)}")
    start, stop = ends
    if start > stop:
        backwards = f"[{start}, {start + 1}]" + ("" if start == stop + 1 else f", then [{start - 1}, {start}], ...")
        value.refuse(f"a layer_range must ascend, got [{start}, {stop}]; write one slice per layer, {backwards}")
    if stop > LAYER_LIMIT:
        value.refuse(f"a layer must be from 0 to {LAYER_LIMIT - 1}, but this range ends at {stop - 1}")
    return start, stop


def _location(value: YamlValue) -> str:
    if value.is_mapping:
        keys = value.mapping("a model")
        for key in ("lora", "override_architecture"):
            if key in keys and not keys[key].is_null:
                keys[key].refuse(f"{key} is not supported; apply it first, and use the resulting folder")
        if "model" not in keys:
            value.refuse("a model must be a hub id or a folder, as in model: org/name")
        inner = keys["model"]
        if not inner.is_mapping:
            return _location(inner)
        parts = inner.mapping("a model")
        if "path" not in parts:
            inner.refuse("a model must have a path, a hub id or a folder")
        revision = parts.get("revision")
        stated = "" if revision is None or revision.is_null else f"@{revision.text('a revision')}"
        return parts["path"].text("a path") + stated
    location = value.text("a model")
    if "+" in location:
        value.refuse(f"{location} adds an adapter to a model; merge the adapter first, and use the resulting folder")
    if location.count("@") > 1:
        value.refuse(f"{location} has more than one @, which marks a revision")
    return location


def _names(slices: list[_Slice]) -> dict[str, str | None]:
    anchors: dict[str, str | None] = {}
    for each in slices:
        usable = each.anchor if each.anchor is not None and _can_name(each.anchor) else None
        anchors[each.location] = anchors.get(each.location) or usable
    if len(anchors) == 1:
        return anchors
    taken = set(anchors.values())
    letters = (name for number in range(LAYER_LIMIT) if (name := source_name(number)) not in taken)
    return {location: anchor or next(letters) for location, anchor in anchors.items()}


def _can_name(anchor: str) -> bool:
    return SOURCE.fullmatch(anchor) is not None and len(anchor) <= MAX_SOURCE_LENGTH


def _check_method(value: YamlValue) -> None:
    method = value.text("merge_method")
    if method != "passthrough":
        value.refuse(
            f"merge_method must be passthrough, got {method}, which computes new weights; run this merge in mergekit, "
            "and load the resulting model"
        )


def _gains(scales: list[YamlValue], count: int) -> Iterator[Gains]:
    for index in range(max(1, count) if scales else count):  # also check the scale of an empty slice
        position = index / (count - 1) if count > 1 else 1.0
        scaled = {name: _scale(scales, name, position) for name in _TENSORS}
        wrong = next((name for name in _TENSORS if scaled[name] != 1 and name not in _OUTPUTS), None)
        if wrong is not None:
            scales[0].refuse(
                f"a scale of {scaled[wrong]:g} multiplies weights ({wrong}), which a plan cannot do; omit it, or scale "
                "the update of a layer, as in (15):gain=0.5, or of its sublayers, with filters for o_proj and down_proj"
            )
        if index < count:
            yield scaled[_OUTPUTS[0]], scaled[_OUTPUTS[1]]


def _scale(scales: list[YamlValue], name: str, position: float) -> float:
    # As in mergekit: the first scale with a matching condition wins.
    values = (_evaluated(scale, name, position) for scale in scales)
    return next((each for each in values if each is not None), 1.0)


def _evaluated(setting: YamlValue, name: str, position: float) -> float | None:
    if setting.is_mapping:
        conditional = setting.mapping("a scale")
        if "value" not in conditional:
            setting.refuse("a filter of a scale must have a value")
        condition = conditional.get("filter")
        condition = None if condition is None or condition.is_null else condition
        value = _evaluated(conditional["value"], name, position)
        text = "*" if condition is None else condition.text("a filter")
        if condition is not None and text != "*" and value != 1 and not any(text in each for each in _TENSORS):
            condition.refuse(f"a scale for {text} multiplies weights; a plan can only scale o_proj and down_proj")
        return value if text == "*" or text in name else None
    if not setting.is_list:
        return setting.number("a scale")
    parts = setting.items("a scale")
    if any(part.is_mapping for part in parts):
        return next((each for part in parts if (each := _evaluated(part, name, position)) is not None), None)
    numbers = [part.number("a scale") for part in parts] or [1.0]
    at = position * (len(numbers) - 1)
    before, after = numbers[int(at)], numbers[min(int(at) + 1, len(numbers) - 1)]
    return before + (at - int(at)) * (after - before)


def _check_donors(top: Mapping[str, YamlValue], locations: list[str]) -> None:
    first = locations[0]
    base = top.get("base_model")
    if base is not None and not base.is_null and _location(base) != first:
        base.refuse(
            f"base_model must be the first slice's model, {first}, which provides the configuration and tokenizer, got "
            f"{_location(base)}; omit base_model"
        )
    source = top.get("tokenizer_source")
    if source is None or source.is_null:
        return
    location = _location(source)
    if location == "union" and len(locations) > 1:
        source.refuse(
            "merging vocabularies is not supported; write tokenizer_source: base for the tokenizer of the first "
            f"slice's model, {first}"
        )
    if location not in ("union", "base", first):
        source.refuse(f"the tokenizer must be that of the first slice's model, {first}; omit tokenizer_source")


def _dtype(top: Mapping[str, YamlValue]) -> str | None:
    types: dict[str, str] = {}
    for key in ("dtype", "out_dtype"):
        value = top.get(key)
        if value is None or value.is_null:
            continue
        types[key] = value.text(key).removeprefix("torch.")
        if types[key] not in DTYPES:
            value.refuse(f"{key} must be one of {', '.join(DTYPES)}, got {types[key]}")
    written = types.get("out_dtype", types.get("dtype"))
    if types.get("dtype", "float32") not in ("float32", written):
        top["dtype"].refuse(f"dtype and out_dtype must agree, got {types['dtype']} and {written}; write one data type")
    return written


def _notes(top: Mapping[str, YamlValue]) -> Iterator[str]:
    for key, value in top.items():
        if key not in (*_READ, *_REFUSED):
            yield f"line {value.line}: mergekit does not read the key {key}, and it has no effect here either"
    parameters = top.get("parameters")
    if parameters is not None and not parameters.is_null:
        for key, value in parameters.mapping("parameters").items():
            if key != "scale":
                yield f"line {value.line}: the parameter {key} has no effect on a passthrough merge"


# -- writing ---------------------------------------------------------------------------------------------------------


def write_mergekit(
    plan: Plan | str, models: Mapping[str | None, str] | str, dtype: str | None = None, head: str | None = None
) -> str:
    """Convert a plan that runs entire layers in sequence to mergekit's YAML; otherwise raise `PlanError`.

    `models` is the location of the model, or a mapping from the names in the plan to locations. The first model
    provides the embedding, and also the head unless `head` names another model.

    >>> print(write_mergekit("0-7 6-11", "org/name"), end="")
    merge_method: passthrough
    slices:
    - sources:
      - model: org/name
        layer_range: [0, 8]
    - sources:
      - model: org/name
        layer_range: [6, 12]
    """
    whole, gains = join_sublayers(plan)
    flat = sequential(whole if gains else plan)
    by_name: Mapping[str | None, str] = {None: models} if isinstance(models, str) else models
    _check_names({step.source for step in flat.steps()} | ({head} if head else set()), by_name)
    if dtype is not None and dtype not in DTYPES:
        raise PlanError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    host = next(iter(by_name))
    ranges = ascending_runs(flat, gains)
    if ranges[0][0] != host:
        ranges.insert(0, (host, 0, 0, (1.0, 1.0)))
    last = host if head is None else head
    if ranges[-1][0] != last:
        ranges.append((last, 0, 0, (1.0, 1.0)))
    lines = ["merge_method: passthrough", *([f"dtype: {dtype}"] if dtype else []), "slices:"]
    declared: set[str | None] = {None}
    for name, start, stop, scales in ranges:
        anchor = "" if name in declared else f"&{name} "
        declared.add(name)
        lines += ["- sources:", f"  - model: {anchor}{_quoted(by_name[name])}", f"    layer_range: [{start}, {stop}]"]
        if scales != (1, 1):
            filters = [
                f"{{filter: {n.rpartition('.')[2]}, value: {each}}}" for n, each in zip(_OUTPUTS, scales, strict=True)
            ]
            lines += ["    parameters:", "      scale:", *(f"      - {each}" for each in (*filters, "value: 1.0"))]
    return "\n".join(lines) + "\n"


def _check_names(used: set[str | None], models: Mapping[str | None, str]) -> None:
    if None in used and len(used) > 1:
        raise PlanError(
            f"{_FORM} needs a model for each layer, but some layers of the plan have none; name it, as in a:0-3"
        )
    for name in sorted(used - models.keys(), key=str):
        whose = "the layers" if name is None else f"the layers of {name!r}"
        raise PlanError(f"{_FORM} needs the location of {whose}; pass it in models")
    for location in models.values():
        if "+" in location or location.count("@") > 1 or not location.isprintable():
            raise PlanError(
                "a location must not contain + or several @, which mergekit reads as adapter and revision; rename "
                f"{location!r}"
            )


def _quoted(location: str) -> str:
    return location if _PLAIN.fullmatch(location) else json.dumps(location, ensure_ascii=False)
