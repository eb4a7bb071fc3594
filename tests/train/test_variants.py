"""Position encodings, position prediction, and learned layer weights of models without them."""

from collections.abc import Callable
from math import e
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedModel

from layerwise.errors import PlanError, TrainError, UnsupportedModelError
from layerwise.plan import Edge, LayerWeights, Plan
from layerwise.plan.samplers import Fixed
from layerwise.stack import Stack, load
from layerwise.train import layer_mixing, position
from layerwise.train.layer_mixing import LayerMixing
from layerwise.train.load_trained import open_trained, saved_edges
from layerwise.train.methods import LayerMixingOptions, Options, PositionOptions, PredictionOptions, recipe
from layerwise.train.position import PositionEncoding, PositionPrediction
from layerwise.train.recipe import Settings
from layerwise.train.trainer import PlanTrainer
from layerwise.train.training import Base, train
from rounding import unit
from tier import first_fast
from train.tiny_models import (
    VOCABULARY,
    WIDTH,
    FirstStep,
    forward_by_hand,
    plan_trainer,
    tiny_digits,
    tiny_llama,
    tiny_text,
    tiny_vit,
)

FEATURES = 5


def _told(stack: Stack, options: PositionOptions) -> PositionEncoding:
    torch.manual_seed(8)
    encoding = position.attach_encoding(stack, options)
    with torch.no_grad():
        for tensor in encoding.parameters():
            tensor.normal_()
    return encoding.eval()


def _by_hand(encoding: PositionEncoding, state: Tensor, layer: int, index: int, shared: bool) -> Tensor:
    tensors = dict(encoding.named_parameters())
    row = tensors[f"tables.{0 if shared else layer}"][index]
    wide = torch.cat([state, row.reshape(1, 1, -1).repeat(*state.shape[:2], 1)], dim=2)
    normed = layer_norm(
        wide, wide.shape[-1:], tensors[f"norms.{layer}.weight"], tensors[f"norms.{layer}.bias"], eps=1e-5
    )
    linear = normed @ tensors[f"projections.{layer}.weight"].T + tensors[f"projections.{layer}.bias"]
    return gelu(linear) + state


@pytest.mark.parametrize("single_pass", [True, False], ids=["single pass", "two passes"])
@pytest.mark.parametrize("text", first_fast(["2 0 2", "2 1", "0-2", "2 0 1", "1 1 1"], 2))
@pytest.mark.parametrize("table", ["per-layer", "shared"])
@torch.no_grad()
def test_position_encodings_match_the_formula(table: str, text: str, single_pass: bool) -> None:
    model = tiny_vit()
    stack = load(model)
    encoding = _told(stack, PositionOptions(features=FEATURES, table=table))
    pixels = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    blocks = list(model.vit.layers)
    plan = Plan.parse(text)
    with stack.under(plan, single_pass=single_pass):
        found = model(pixel_values=pixels).logits
    state = model.vit.embeddings(pixels)
    for index, layer in enumerate(plan.order()):
        told = _by_hand(encoding, state, layer, index, table == "shared")
        state = type(blocks[layer]).forward(blocks[layer], told)
    expected = model.classifier(model.vit.layernorm(state)[:, 0])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("single_pass", [True, False])
def test_more_visits_than_positions_are_rejected(single_pass: bool) -> None:
    stack = load(tiny_vit())
    position.attach_encoding(stack, PositionOptions())
    pixels = torch.zeros(1, 1, 8, 8)
    with (
        stack.under(Plan.parse("0 1 2 0"), single_pass=single_pass),
        pytest.raises(TrainError, match="must run at most 3 layers, counting repeats, got 4"),
    ):
        stack.model(pixel_values=pixels)


@torch.no_grad()
def test_dropout_applies_to_the_encoding_in_training_only() -> None:
    encoding = PositionEncoding(2, WIDTH, PositionOptions(dropout=0.5))
    state = torch.randn(1, 40, WIDTH, generator=torch.Generator().manual_seed(0))
    evaluated = encoding.eval()(state, 1, 0) - state
    torch.manual_seed(0)
    trained = encoding.train()(state, 1, 0) - state
    dropped = trained == 0
    assert 0.4 < dropped.float().mean() < 0.6
    torch.testing.assert_close(trained[~dropped], 2 * evaluated[~dropped], rtol=1e-3, atol=1e-5)


def test_models_that_cannot_have_or_keep_an_encoding_are_rejected(tmp_path: Path) -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

    with pytest.raises(TrainError, match=r"require config\.hidden_size, which Bare lacks"):
        position.attach_encoding(Stack(Bare(), "layers"), PositionOptions())

    stacks = {name: load(tiny_vit()) for name in "ab"}
    for stack in stacks.values():
        position.attach_encoding(stack, PositionOptions())
    merged = stacks["a"].with_sources(stacks)
    with (
        merged.under(Plan.parse("a:0 b:1 a:2"), single_pass=True),
        pytest.raises(TrainError, match="cannot be merged"),
    ):
        merged.model(pixel_values=torch.zeros(1, 1, 8, 8))

    stack = load(tiny_vit())
    position.attach_encoding(stack, PositionOptions(features=FEATURES))
    stack.model.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match=r"trained with an encoding of their positions \(layer_positions\)"):
        load(tmp_path)
    assert load(tmp_path, adding=("layer_positions",)).depth == stack.depth


PIXELS = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def _asked(model: Any, options: PredictionOptions) -> tuple[Any, PositionPrediction]:
    stack = load(model)
    torch.manual_seed(8)
    found = position.attach_prediction(stack, options)
    with torch.no_grad():
        for tensor in found.parameters():
            tensor.normal_()
    return stack, found


def _outputs(model: Any, order: tuple[int, ...]) -> list[Tensor]:
    state, found = model.vit.embeddings(PIXELS), []
    for layer in order:
        state = model.vit.layers[layer](state)
        found.append(state)
    return found


def _logits(asked: PositionPrediction, state: Tensor, layer: int, reads: str) -> Tensor:
    tensors = dict(asked.named_parameters())
    read = state[:, 0] if reads == "first" else state.sum(1) / state.shape[1]
    normed = layer_norm(read, read.shape[-1:], tensors[f"norms.{layer}.weight"], tensors[f"norms.{layer}.bias"])
    return normed @ tensors[f"classifiers.{layer}.weight"].T + tensors[f"classifiers.{layer}.bias"]


def _nats(logits: Tensor, position: int) -> Tensor:
    return (logits.exp().sum(1).log() - logits[:, position]).mean()


@pytest.mark.parametrize("single_pass", [True, False], ids=["single pass", "two passes"])
@pytest.mark.parametrize("text", first_fast(["2 0 1", "0-2", "2 0 2", "1 2"]))
@pytest.mark.parametrize("total", ["sum", "mean"])
@pytest.mark.parametrize("reads", ["first", "mean"])
@torch.no_grad()
def test_prediction_loss_and_accuracy_match_the_formulas(reads: Any, total: Any, text: str, single_pass: bool) -> None:
    plain = tiny_vit()
    order = Plan.parse(text).order()
    outputs = _outputs(plain, order)
    stack, asked = _asked(tiny_vit(), PredictionOptions(total=total, reads=reads))
    with stack.under(Plan.parse(text), single_pass=single_pass):
        logits = stack.model(pixel_values=PIXELS).logits
    torch.testing.assert_close(logits, plain.classifier(plain.vit.layernorm(outputs[-1])[:, 0]))
    said = [_logits(asked, state, layer, reads) for state, layer in zip(outputs, order, strict=True)]
    losses = [_nats(found, position) for position, found in enumerate(said)]
    expected = sum(losses) if total == "sum" else sum(losses) / len(losses)
    assert float(asked.loss()) == pytest.approx(float(expected), rel=1e-4)
    assert {position: hit.tolist() for position, hit in asked.hits().items()} == {
        position: [max(range(3), key=row.__getitem__) == position for row in found.tolist()]
        for position, found in enumerate(said)
    }


@torch.no_grad()
def test_predictions_are_those_of_the_last_pass() -> None:
    stack, asked = _asked(tiny_vit(), PredictionOptions())
    for text in ("2 0 1", "1 2"):
        with stack.under(Plan.parse(text), single_pass=True):
            stack.model(pixel_values=PIXELS)
        assert [position for position, _ in asked.predicted] == list(range(len(Plan.parse(text).order())))


@torch.no_grad()
def test_the_mean_state_excludes_padding() -> None:
    stack, asked = _asked(tiny_llama(), PredictionOptions(reads="mean"))
    texts = [torch.tensor([[3, 4, 5]]), torch.tensor([[6, 7, 8, 9, 10, 11]])]
    ids, mask = torch.zeros(2, 6, dtype=torch.int64), torch.zeros(2, 6, dtype=torch.int64)
    for row, text in enumerate(texts):
        ids[row, : text.shape[1]], mask[row, : text.shape[1]] = text, 1
    stack.model(input_ids=ids, attention_mask=mask)
    together = [logits for _, logits in asked.predicted]
    for row, text in enumerate(texts):
        stack.model(input_ids=text)
        for at, logits in asked.predicted:
            torch.testing.assert_close(together[at][row], logits[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("passes", [1, 2], ids=["whole", "accumulated"])
@pytest.mark.parametrize("kind", first_fast(["vit", "llama"]))
def test_the_prediction_loss_is_added_in_training(kind: str, passes: int, tmp_path: Path) -> None:
    splits, make = (tiny_digits(), tiny_vit) if kind == "vit" else (tiny_text(), tiny_llama)
    stack, asked = _asked(make(), PredictionOptions())
    sizes = {"per_device_train_batch_size": 8 // passes, "gradient_accumulation_steps": passes}
    drawn = Fixed(Plan.parse("2 0 1"))
    found = FirstStep().of(plan_trainer(stack, splits, tmp_path, drawn, own={"added": asked}, max_steps=1, **sizes))
    stack, asked = _asked(make(), PredictionOptions())
    total = torch.zeros(())
    by_hand = []
    for batch in found.batches:
        with stack.under(Plan.parse("2 0 1"), single_pass=True):
            stack.model(**{name: tensor for name, tensor in batch.items() if name != "labels"})
        extra = asked.loss()
        by_hand.append((forward_by_hand(make(), batch, (2, 0, 1)).item() + extra.item()) / passes)
        total = total + (extra + forward_by_hand(stack.model, batch, (2, 0, 1))) / passes
    total.backward()
    assert found.losses == pytest.approx(by_hand, rel=1e-5)
    for name, weight in stack.model.named_parameters():
        torch.testing.assert_close(found.gradients[name], weight.grad, rtol=1e-3, atol=1e-6, msg=name)


def test_validation_includes_the_prediction_loss(tmp_path: Path) -> None:
    splits = tiny_digits()
    stack, asked = _asked(tiny_vit(), PredictionOptions())
    trainer = plan_trainer(stack, splits, tmp_path, Fixed(), own={"added": asked}, per_device_eval_batch_size=20)
    batch = splits.collate([splits.validation[index] for index in range(20)])
    with torch.no_grad():
        task = forward_by_hand(tiny_vit(), batch, (0, 1, 2)).item()
    found = trainer.evaluate()["eval_loss"]
    assert [position for position, _ in asked.predicted] == [0, 1, 2]
    assert found == pytest.approx(task + asked.loss().item(), rel=1e-5)


@pytest.mark.parametrize("single_pass", [True, False], ids=["single pass", "two passes"])
def test_layers_of_another_model_predict_nothing(single_pass: bool) -> None:
    stacks = {}
    for seed, name in enumerate("ab"):
        torch.manual_seed(seed)
        stacks[name], _ = _asked(tiny_vit(), PredictionOptions())
    merged = stacks["a"].with_sources(stacks)
    plan = Plan.parse("b:1 a:0 b:2")
    with torch.inference_mode():
        expected = merged.logits(plan, pixel_values=PIXELS)
        with merged.under(plan, single_pass=single_pass):
            assert torch.equal(merged.model(PIXELS).logits, expected)


SOFTMAX, FREE = LayerMixingOptions("softmax"), LayerMixingOptions("free")
KINDS = pytest.mark.parametrize("options", [SOFTMAX, FREE], ids=["softmax", "free"])


def tiny_gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"n_embd": WIDTH, "n_layer": 3, "n_head": 2, "n_positions": 32, "vocab_size": VOCABULARY}
    return GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.2, use_cache=False)).eval()


def tiny_bert() -> BertForMaskedLM:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
        initializer_range=0.2,
    )
    return BertForMaskedLM(config).eval()


MAKERS: tuple[Callable[[], PreTrainedModel], ...] = (tiny_llama, tiny_vit, tiny_gpt2, tiny_bert)
MODELS = pytest.mark.parametrize("make", first_fast(MAKERS, slow=1))


def inputs_of(model: PreTrainedModel) -> dict[str, Tensor]:
    chance = torch.Generator().manual_seed(3)
    if model.main_input_name == "pixel_values":
        return {"pixel_values": torch.randn(2, 1, 8, 8, generator=chance, dtype=torch.float64).to(model.dtype)}
    return {"input_ids": torch.randint(3, VOCABULARY, (2, 7), generator=chance)}


def drawn(stack: Stack, options: LayerMixingOptions, seed: int = 5) -> LayerMixing:
    found = layer_mixing.attach(stack, options)
    torch.manual_seed(seed)
    with torch.no_grad():
        found.raw.copy_(torch.randn_like(found.raw))
        found.raw[0, 0] = 1.0
    return found


def blocks_by_hand(stack: Stack, inputs: dict[str, Tensor]) -> tuple[Tensor, Callable[[int, Tensor], Tensor], Any]:
    captured = stack.capture(**inputs)
    plain = [type(stack.block(layer)).forward for layer in range(stack.depth)]

    def block(layer: int, state: Tensor) -> Tensor:
        call = captured.calls[layer]
        found = plain[layer](stack.block(layer), state, *call.args[1:], **call.kwargs)
        state = found[0] if isinstance(found, tuple) else found
        assert isinstance(state, Tensor)
        return state

    return captured.state, block, lambda state: stack.finish(state, captured.inputs)


def by_hand(
    alpha: list[list[float]],
    order: tuple[int, ...],
    free: bool,
    embedding: Tensor,
    block: Callable[[int, Tensor], Tensor],
) -> Tensor:
    states = {0: embedding}
    depth = len(alpha[0]) - 1

    def read(reader: int) -> Tensor:
        row = dict(enumerate(alpha[reader][: reader + 1]))
        present = {source: row[source] for source in sorted(states) if source <= reader}
        if free:
            for source in set(row) - set(present):
                present[max(known for known in present if known < source)] += row[source]
        else:
            present = {source: weight / sum(present.values()) for source, weight in present.items()}
        return sum(weight * states[source] for source, weight in present.items())  # type: ignore[return-value]

    state = embedding
    for layer in order:
        state = block(layer, embedding if layer == 0 else read(layer))
        states[layer + 1] = state
    return read(depth) if free else state


def logits_of(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    logits = model(**inputs).logits
    assert isinstance(logits, Tensor)
    return logits


@MODELS
@torch.no_grad()
def test_identity_layer_weights_match_the_original_model(make: Callable[[], PreTrainedModel]) -> None:
    model = make()
    inputs = inputs_of(model)
    plain = logits_of(model, inputs)
    stack = load(model)
    with stack.under(Plan.parse("0 2")):
        skipped = logits_of(model, inputs)
    layer_mixing.attach(stack, FREE)
    torch.testing.assert_close(logits_of(model, inputs), plain, rtol=0, atol=0)
    with stack.under(Plan.parse("0 2")):
        torch.testing.assert_close(logits_of(model, inputs), skipped, rtol=0, atol=0)


@pytest.mark.parametrize("single_pass", [True, False], ids=["single pass", "two passes"])
@pytest.mark.parametrize("text", ["0-2", "0 2", "1 2", "2", "2 0 1", "0 1 1 2"])
@KINDS
@MODELS
@torch.no_grad()
def test_layer_inputs_match_the_formula_under_any_plan(
    make: Callable[[], PreTrainedModel], options: LayerMixingOptions, text: str, single_pass: bool
) -> None:
    model = make()
    stack, inputs = load(model), inputs_of(model)
    embedding, block, finish = blocks_by_hand(stack, inputs)
    order = Plan.parse(text).order()
    torch.manual_seed(5)
    rows = torch.eye(4)[: 3 + (options.kind == "free")]
    raw = torch.randn_like(rows)
    alpha = (raw if options.kind == "free" else raw.exp()).tril()
    if options.kind == "softmax":
        alpha = alpha / alpha.sum(1, keepdim=True)
    expected = finish(by_hand(alpha.tolist(), order, options.kind == "free", embedding, block)).logits
    found = layer_mixing.attach(stack, options)
    found.raw.copy_(raw)
    with stack.under(Plan.of(order), single_pass=single_pass):
        torch.testing.assert_close(logits_of(model, inputs), expected, rtol=1e-4, atol=1e-5)


def test_initial_layer_weights_and_their_published_number() -> None:
    biased = LayerMixing(12, SOFTMAX).layer_weights().detach()
    assert [float(biased[n, n]) for n in range(12)] == pytest.approx([e / (e + n) for n in range(12)])
    mean = LayerMixing(4, LayerMixingOptions("softmax", "zero")).layer_weights()
    # Rounding units of a softmax over n equal scores: exp 2, their mean 2, sum n - 1, quotient 1, expected share 1.
    expected = torch.ones(4, 5).tril() / torch.arange(1, 5)[:, None]
    torch.testing.assert_close(mean, expected, rtol=(2 + 2 + 3 + 1 + 1) * unit(torch.float32), atol=0)
    with pytest.raises(TrainError, match="free layer weights must not start at 0"):
        LayerMixingOptions("free", "zero")

    depth = 12
    softmax = LayerMixing(depth, SOFTMAX)
    assert len(softmax.edges()) == depth * (depth + 1) // 2 == 78
    dense = LayerMixing(depth, FREE).kept.sum()
    assert int(dense) - 1 == depth * (depth + 3) // 2  # layer 0 reads the embedding, which is not learned


def trainer_of(stack: Stack, found: LayerMixing, folder: Path, draws: Any = None, **options: Any) -> PlanTrainer:
    splits = tiny_digits() if stack.model.main_input_name == "pixel_values" else tiny_text()
    return plan_trainer(stack, splits, folder, draws or Fixed(), own={"added": found}, **options)


def test_layer_weights_have_their_own_rate_and_no_decay(tmp_path: Path) -> None:
    stack = load(tiny_vit())
    found = layer_mixing.attach(stack, LayerMixingOptions("free", rate=7.0))
    trainer = trainer_of(stack, found, tmp_path, learning_rate=1e-3, weight_decay=0.5)
    groups = trainer.create_optimizer().param_groups
    mine = [group for group in groups if any(each is found.raw for each in group["params"])]
    assert [(len(group["params"]), group["lr"], group["weight_decay"]) for group in mine] == [(1, 7e-3, 0.0)]
    every = [id(each) for group in groups for each in group["params"]]
    assert sorted(every) == sorted(id(each) for each in stack.model.parameters())
    assert {group["weight_decay"] for group in groups} == {0.0, 0.5}
    assert len(trainer.create_optimizer().param_groups) == len(groups)


@pytest.mark.parametrize("method", first_fast(["wiring-softmax", "wiring-identity"]))
def test_layer_weights_are_saved_and_loaded(method: str, tmp_path: Path) -> None:
    settings = Settings(epochs=1, batch_size=8, evals=1, learning_rate=1e-2)
    chosen = recipe(method, Options(settings), 3)
    train(Base(lambda: load(tiny_vit()), "weights"), tiny_digits(), chosen, 0, tmp_path, arguments={"use_cpu": True})
    model = tmp_path / "model"
    opened = open_trained(model)
    wired = layer_mixing.of(opened.stack.model)
    assert isinstance(wired, LayerMixing)
    assert wired is opened.added
    assert (wired.raw != LayerMixing(3, chosen.extension).raw).any()
    assert saved_edges(model) == wired.edges()
    with pytest.raises(UnsupportedModelError, match="learned weights of what each layer reads"):
        load(model)
    again = open_trained(model)
    pixels = inputs_of(opened.stack.model)
    with torch.no_grad():
        assert torch.equal(logits_of(opened.stack.model, pixels), logits_of(again.stack.model, pixels))


@KINDS
@torch.no_grad()
def test_removed_edges_match_the_formula(options: LayerMixingOptions, tmp_path: Path) -> None:
    model = tiny_vit()
    stack, inputs = load(model), inputs_of(model)
    embedding, block, finish = blocks_by_hand(stack, inputs)
    found = drawn(stack, options)
    free = options.kind == "free"
    cut = found.edges().without(Edge(2, 0), Edge(1, 1), renormalize=not free)
    found.set_edges(cut)
    torch.testing.assert_close(found.layer_weights(), torch.tensor(cut.matrix()))
    expected = finish(by_hand([list(row) for row in cut.matrix()], (0, 1, 2), free, embedding, block)).logits
    torch.testing.assert_close(logits_of(model, inputs), expected, rtol=1e-4, atol=1e-5)
    with torch.enable_grad():
        trainer_of(stack, found, tmp_path, max_steps=3).train()
    assert set(found.edges()) == set(cut)
    assert found.edges() != cut


@torch.no_grad()
def test_states_are_freed_after_their_last_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = load(tiny_vit(depth=5))
    found = layer_mixing.attach(stack, SOFTMAX)
    sparse = LayerWeights.of([[1, 0], [0.5, 0.5], [0, 0.5, 0.5], [0, 0, 0.5, 0.5], [0, 0, 0, 0, 1]], depth=5)
    inputs = inputs_of(stack.model)
    lengths: list[int] = []
    read = LayerMixing.read

    def noted(self: LayerMixing, alpha: Tensor, reader: int, record: Any) -> Tensor:
        lengths.append(len(record.states))
        return read(self, alpha, reader, record)

    monkeypatch.setattr(LayerMixing, "read", noted)
    logits_of(stack.model, inputs)
    assert lengths == [1, 2, 3, 4, 5]
    found.set_edges(sparse)
    lengths.clear()
    dropped = logits_of(stack.model, inputs)
    assert max(lengths) == 2
    with torch.enable_grad():
        torch.testing.assert_close(logits_of(stack.model, inputs).detach(), dropped)


def test_layer_weights_of_another_shape_are_rejected() -> None:
    softmax, free = LayerMixing(3, SOFTMAX), LayerMixing(3, FREE)
    with pytest.raises(PlanError, match="edges must have 3 layers and 3 rows, got 3 and 4"):
        softmax.set_edges(free.edges())
    with pytest.raises(PlanError, match="edges must have 3 layers"):
        free.set_edges(LayerWeights.identity(4))
    unscaled = softmax.edges().without(Edge(2, 0), renormalize=False)
    with pytest.raises(PlanError, match="each row must sum to 1"):
        softmax.set_edges(unscaled)


@torch.no_grad()
def test_unsupported_plans_are_rejected() -> None:
    model = tiny_llama()
    stack, inputs = load(model), inputs_of(model)
    stack.branches()
    layer_mixing.attach(stack, SOFTMAX)
    for text in ("0 (1|2)", "0 1.mlp 2"):
        with stack.under(Plan.parse(text)), pytest.raises(TrainError, match="must have no groups or sublayers"):
            model(**inputs)
    with pytest.raises(TrainError, match="cannot run on its own"):
        stack.run(Plan.parse("0-2"), stack.capture(**inputs))
    other = load(tiny_llama(seed=1))
    union = Stack.with_sources({"a": other, "b": stack})
    with union.under(Plan.parse("a:0 b:1 a:2")), pytest.raises(TrainError, match="cannot be merged"):
        other.model(**inputs)


@torch.no_grad()
def test_cached_decoding_matches_recomputation() -> None:
    model = tiny_llama()
    model.config.use_cache = model.generation_config.use_cache = True
    stack = load(model)
    drawn(stack, FREE)
    ids = inputs_of(model)["input_ids"]
    options: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    for text in ("0-2", "0 2"):
        with stack.under(Plan.parse(text)):
            cached = model.generate(ids, use_cache=True, **options)
            assert torch.equal(cached, model.generate(ids, use_cache=False, **options))
