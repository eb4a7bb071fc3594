"""Plans in the formats of other tools."""

import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import PlanError
from layerwise.gguf.file import TENSOR_TYPES
from layerwise.plan import Block, Plan, Stage, Visit
from layerwise.plan.checks import TYPES
from layerwise.plan.dialects import read, read_mergekit, sequential, write_mergekit, write_tensor_types
from tier import by_tier

DEPTH = 24


def sequence(chance: random.Random, names: Sequence[str | None] = (None,), depth: int = DEPTH) -> Plan:
    visits: list[Visit] = []
    for _ in range(chance.randint(1, 4)):
        name, first, last = chance.choice(names), chance.randrange(depth), chance.randrange(depth)
        if chance.random() < 0.3:
            visits += [Visit(first, source=name)] * chance.randint(1, 3)
        elif first <= last or chance.random() < 0.1:
            step = 1 if first <= last else -1
            visits += [Visit(layer, source=name) for layer in range(first, last + step, step)]
        else:
            visits.append(Visit(first, source=name))
    return Plan(tuple(visits))


def repeated(chance: random.Random, plan: Plan) -> Plan:
    stages: list[Stage] = []
    for stage in plan.stages:
        assert isinstance(stage, Visit)
        times = chance.choice([1, 1, 2, 3])
        again = Visit(stage.layer, times, source=stage.source)
        stages.append(Block(Plan((again, stage)), 2) if chance.random() < 0.2 else again)
    return Plan(tuple(stages))


ONE = """\
merge_method: passthrough
dtype: bfloat16
slices:
  - sources:
      - model: org/name
        layer_range: [0, 8]
  - sources:
      - model: org/name
        layer_range: [6, 12]
"""

FIRST = "model: org/name\n        layer_range: [0, 8]"


def edited(old: str, new: str) -> str:
    assert old in ONE
    return ONE.replace(old, new)


def added(lines: str) -> str:
    return f"{ONE}{lines}\n"


def test_slices_of_one_model_are_a_plan_without_names() -> None:
    recipe = read(ONE)
    assert (str(recipe.plan), dict(recipe.models), recipe.head) == ("0-7 6-11", {None: "org/name"}, None)
    assert (recipe.dtype, recipe.notes) == ("bfloat16", ())

    recipe = read_mergekit(added("tag: &factor 0.5\nparameters: {t: *factor}"))
    assert recipe.plan == read_mergekit(ONE).plan
    assert recipe.notes == (
        "line 10: mergekit does not read the key tag, and it has no effect here either",
        "line 10: the parameter t has no effect on a passthrough merge",
    )


def test_several_models_are_called_by_their_anchors_or_by_letters() -> None:
    text = """
slices:
- sources: [{model: org/one, layer_range: [0, 8]}]
- sources: [{model: &b org/two, layer_range: [4, 12]}]
- sources: [{model: org/three, layer_range: [12, 14]}]
- sources: [{model: *b, layer_range: ["14", 16]}]
merge_method: "passthrough"
"""
    recipe = read_mergekit(text)
    assert str(recipe.plan) == "a:0-7 b:4-11 c:12 c:13 b:14 b:15"
    assert dict(recipe.models) == {"a": "org/one", "b": "org/two", "c": "org/three"}
    assert (recipe.host, recipe.head) == ("a", "b")


def test_a_slice_of_no_layers_says_whose_embedding_and_head_are_taken() -> None:
    text = "merge_method: passthrough\nslices:\n" + "".join(
        f"- sources: [{{model: {model}, layer_range: {layers}}}]\n"
        for model, layers in (("one/x", "[0, 0]"), ("two/x", "[0, 4]"), ("one/x", "[5, 5]"))
    )
    recipe = read_mergekit(text)
    assert str(recipe.plan) == "b:0-3"
    assert (recipe.host, recipe.head, dict(recipe.models)) == ("a", "a", {"a": "one/x", "b": "two/x"})


@pytest.mark.parametrize(
    "lines",
    [
        "parameters: {scale: 1}",
        "parameters: {scale: [1.0, 1]}",
        "parameters:\n  scale:\n  - {filter: o_proj, value: 1.0}\n  - value: 1",
        "base_model: org/name",
        "base_model: {model: {path: org/name}}",
        "tokenizer_source: base",
        "tokenizer_source: union",
        "tokenizer_source: org/name",
        "tokenizer_source:",
        "out_dtype: bfloat16",
        "chat_template: ~",
    ],
)
def test_entries_without_effect_are_accepted(lines: str) -> None:
    assert read_mergekit(added(lines)) == read_mergekit(ONE)


HALF = "[{filter: o_proj, value: 0.5}, {filter: down_proj, value: 0}, {value: 1}]"
SCALED = {
    f"scale: {HALF}": "(6.attn):gain=0.5 (6.mlp):gain=0 (7.attn):gain=0.5 (7.mlp):gain=0",
    "scale: {filter: o_proj, value: 0.5}": "(6.attn):gain=0.5 6.mlp (7.attn):gain=0.5 7.mlp",
    "scale: [{filter: down_proj, value: [0, 1]}]": "6.attn (6.mlp):gain=0 7",
    "scale: [{filter: o_proj, value: [1, 0, 0.5]}]": "6 (7.attn):gain=0.5 7.mlp",
    "scale: [{filter: _proj, value: 1}, {filter: o_proj, value: 0}]": "6 7",
}


@pytest.mark.parametrize("scale", SCALED)
def test_scales_of_output_projections_are_gains(scale: str) -> None:
    text = edited("[6, 12]", f"[6, 8]\n        parameters: {{{scale}}}")
    recipe = read_mergekit(text)
    assert recipe.plan == Plan.parse(f"0-7 {SCALED[scale]}")
    assert read_mergekit(write_mergekit(recipe.plan, "org/name", "bfloat16")) == recipe


def test_of_scales_in_several_places_the_innermost_counts() -> None:
    text = edited("[6, 12]", "[6, 7]\n        parameters: {scale: [{filter: o_proj, value: 0.5}]}")
    outer = f"{text}    parameters: {{scale: [{{filter: o_proj, value: 0.25}}, {{filter: down_proj, value: 0.25}}]}}\n"
    whole = f"{outer}parameters: {{scale: [{{filter: down_proj, value: 2}}]}}\n".replace("[0, 8]", "[0, 1]")
    wanted = "0.attn (0.mlp):gain=2 (6.attn):gain=0.5 (6.mlp):gain=0.25"
    assert read_mergekit(whole).plan == Plan.parse(wanted)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (edited("passthrough", "slerp"), 1, "merge_method must be passthrough"),
        (edited("[6, 12]", "[12, 6]"), 9, "a layer_range must ascend"),
        (edited("[6, 12]", "[6, 7, 8]"), 9, "a layer_range must have two ends, such as [0, 8] for layers 0 to 7"),
        (edited("[6, 12]", "[6, 010]"), 9, "an end of a layer_range must be an integer such as 12"),
        (edited("[6, 12]", "6"), 9, "a layer_range must be a list"),
        (edited("[6, 12]", "[6, 20000]"), 9, "a layer must be from 0 to 9999"),
        (edited("        layer_range: [6, 12]\n", ""), 8, "layer_range is missing"),
        (
            edited("[6, 12]", "[6, 12]\n      - {model: org/two, layer_range: [6, 12]}"),
            8,
            "a slice must have one source",
        ),
        (edited("[6, 12]", "[6, 12]\n        parameters: {scale: 0.5}"), 10, "a scale of 0.5 multiplies weights"),
        (added("parameters:\n  scale:\n  - filter: q_proj\n    value: 0.0\n  - value: 1.0"), 12, "a scale of 0"),
        (added("parameters: {scale: {filter: layers.3, value: 0.5}}"), 10, "a scale for layers.3 multiplies"),
        (added("parameters: {scale: [{filter: mlp, value: 0.5}]}"), 10, "with filters for o_proj and down_proj"),
        (added("parameters: {scale: [1, 0.9]}"), 10, "as in (15):gain=0.5"),
        (added("parameters: {scale: fast}"), 10, "a scale must be a number such as 1 or 0.5"),
        (
            added("models: [{model: org/name}]"),
            10,
            "the key models is not supported, because it merges entire models of unknown depth",
        ),
        (
            added("tokenizer: {source: union}"),
            10,
            "the key tokenizer is not supported, because vocabularies cannot be merged",
        ),
        (
            added("base_model: org/other"),
            10,
            "base_model must be the first slice's model, org/name, which provides the",
        ),
        (added("tokenizer_source: org/other"), 10, "the tokenizer must be that of the first slice's model, org/name"),
        (edited("bfloat16", "int64"), 2, "dtype must be one of float32, float16, bfloat16"),
        (added("out_dtype: float32"), 2, "dtype and out_dtype must agree"),
        (added("dtype: float16"), 10, "the key 'dtype' is duplicated"),
        (edited(FIRST, FIRST.replace("name", "name+adapter")), 5, "merge the adapter first"),
        ("slices:\n- sources: [{model: a/b, layer_range: [0, 1]}]\n", 1, "the key merge_method is missing"),
        ("merge_method: passthrough\nslices: []\n", 2, "slices must not be empty"),
        ("merge_method: passthrough\nslices:\n- sources: [{model: a/b, layer_range: [3, 3]}]\n", 3, "have no layers"),
        ("- a\n- b\n", 1, "a merge configuration must be a mapping of keys to values"),
        ("a: &x 1\nb: *y\n", 2, "the text must be valid YAML (found undefined alias"),
    ],
)
def test_a_plan_refuses_unsupported_settings_with_their_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(PlanError) as refused:
        read_mergekit(text)
    assert str(refused.value).startswith(f"line {line}: "), refused.value
    assert reason in str(refused.value)


UNION = write_mergekit("a:0-3 b:4", {"a": "org/one", "b": "org/two"}) + "tokenizer_source: union\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (UNION, "write tokenizer_source: base for the tokenizer of the first slice's model, org/one"),
        ("", "the text is empty"),
        ("[" * 5_000, "nested too deeply"),
        ("a: &x [*x]\nslices: *x\nmerge_method: passthrough", "line"),
        ("x" * 300_000, "at most 262 kB"),
        ("a: !!python/object/apply:os.system [ls]", "the key merge_method is missing"),
        ("a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nslices: *c\nmerge_method: passthrough", "line"),
    ],
)
def test_unions_and_hostile_texts_are_refused(text: str, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        read_mergekit(text)


def test_runs_of_layers_that_go_up_become_slices_and_the_rest_slices_of_one() -> None:
    text = write_mergekit("0-7 6-11 3-1 5*2", "org/name", dtype="float16")
    ranges = [line.partition(": ")[2] for line in text.splitlines() if "layer_range" in line]
    assert ranges == ["[0, 8]", "[6, 12]", "[3, 4]", "[2, 3]", "[1, 2]", "[5, 6]", "[5, 6]"]
    assert text.startswith("merge_method: passthrough\ndtype: float16\nslices:\n- sources:\n  - model: org/name\n")


@pytest.mark.parametrize(
    ("plan", "models", "reason"),
    [
        ("0 (1|2)", "org/name", r"stage 2 of the plan, \(1\|2\), runs layers in parallel, but mergekit's"),
        ("a:0 1", {"a": "x/y"}, "mergekit's YAML needs a model for each layer, but some layers of the"),
        ("a:0 b:1", {"a": "x/y"}, "mergekit's YAML needs the location of the layers of 'b'"),
        ("0", {"a": "x/y"}, "mergekit's YAML needs the location of the layers"),
        ("0", "x/y+z", r"a location must not contain \+ or several @, which mergekit reads as"),
    ],
)
def test_plans_that_yaml_cannot_express_are_refused(
    plan: str, models: dict[str | None, str] | str, reason: str
) -> None:
    with pytest.raises(PlanError, match=reason):
        write_mergekit(plan, models)


LOCATIONS = ("org/name", "1e3", "true", "~", "a: b", "#x", '"', "'", "\\", "é/ü", "C:\\x", "name", "1/2", "-", "x/")


def test_a_location_is_written_so_that_it_stays_a_text() -> None:
    for location in LOCATIONS:
        assert read_mergekit(write_mergekit("0", location)).models == {None: location}


@pytest.mark.parametrize(
    ("text", "stage", "reason", "instead", "position"),
    [
        ("0-13 (14|15) 18-31", "2", "runs layers in parallel", "write its layers in sequence, as in 14 15", 5),
        ("0 1 (2):gain=0.5", "3", "scales the update of a layer", "write the entire layer, as in 2", 4),
        ("0-2 8-11.mlp 12", "2", "runs only the mlp sublayer", "as in 8-11", 4),
        ("a:0-3 [a:4 (b:5|b:6)*2]*2 7", "2", "runs layers in parallel", "as in a:4 b:5 b:6", 6),
    ],
)
def test_the_error_names_the_stage_that_is_not_sequential(
    text: str, stage: str, reason: str, instead: str, position: int
) -> None:
    with pytest.raises(PlanError, match=rf"^stage {stage} of the plan, .* {reason}, but .*; .*{instead}") as refused:
        sequential(text)
    assert refused.value.position == position


KINDS = {each.name.lower(): each.name for each in TENSOR_TYPES.values()}


def as_read(text: str, tensor: str) -> str | None:
    for word in text.split():
        name, _, kind = word.partition("=")
        assert name
        assert kind in KINDS
        if re.search(name.lower(), tensor):
            return KINDS[kind]
    return None


@given(st.lists(st.sampled_from(["", *(f"{name}:" for name in TYPES)]), min_size=1, max_size=120))
def test_every_layer_gets_its_type_and_no_other(types: list[str]) -> None:
    plan = Plan.parse(" ".join(f"{kind}{layer}" for layer, kind in enumerate(types)))
    if not any(types):
        with pytest.raises(PlanError, match="a file of tensor types requires a quantized layer, such as Q4_0:0"):
            write_tensor_types(plan)
        return
    text = write_tensor_types(plan, depth=len(types))
    for layer, kind in enumerate(types):
        for name in ("attn_q.weight", "ffn_down.weight"):
            assert as_read(text, f"blk.{layer}.{name}") == (kind.rstrip(":") or None)
    assert as_read(text, "token_embd.weight") is None


@pytest.mark.parametrize(
    ("plan", "depth", "words"),
    [
        ("0 Q4_0:2 1", None, "a file of tensor types requires a plan with all layers in their original order, 0-2"),
        ("0 Q4_0:1*2", None, "a file of tensor types requires a plan with all layers in their original order, 0-2"),
        ("0 (Q4_0:1|2)", None, "a file of tensor types requires a plan with all layers in their original order, 0-2"),
        (
            "0 Q4_0-noise3:1",
            None,
            "a file of tensor types requires a quantized layer, such as Q4_0:0, but the plan adds noise to layer 1",
        ),
    ],
)
def test_plans_that_a_file_cannot_express_are_refused(plan: str, depth: int | None, words: str) -> None:
    with pytest.raises(PlanError) as refused:
        write_tensor_types(plan, depth=depth)
    assert words in str(refused.value)


UNNAMED = {None: "org/name"}
SEVERAL = {"a": "org/one", "run-2": "/models/two words", "m_3": "three@main"}


def check_mergekit(seed: int) -> None:
    chance = random.Random(seed)
    models: dict[str | None, str] = dict(UNNAMED if chance.random() < 0.5 else SEVERAL)
    plan = sequence(chance, list(models))
    head = chance.choice(list(models))
    recipe = read_mergekit(write_mergekit(plan, models, dtype=chance.choice([None, "bfloat16"]), head=head))
    assert recipe.plan == plan, plan
    used = {step.source for step in plan.steps()} | {next(iter(models)), head}
    assert dict(recipe.models) == {name: models[name] for name in recipe.models}
    assert set(recipe.models) == used
    assert (recipe.host, recipe.head) == (next(iter(models)), head)
    if chance.random() < 0.1:
        nested = repeated(chance, plan)
        assert read(write_mergekit(nested, models)).plan == sequential(nested)
        assert sequential(nested).order() == nested.order()


def check_all(count: int) -> None:
    for seed in range(count):
        check_mergekit(seed)


def test_a_plan_is_read_as_it_was_written() -> None:
    check_all(by_tier(fast=100, nightly=100_000))
