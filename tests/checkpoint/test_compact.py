"""Compact checkpoints (each layer once, and a plan) run with layerwise, and with transformers alone."""

import gc
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from contracts.specimen import build, inputs
from contracts.zoo import SUPPORTED
from layerwise.checkpoint import compact, remote_code, save
from layerwise.checkpoint.remote_code import automatic_classes, joined_modules
from layerwise.data.model_location import location_of
from layerwise.errors import CheckpointError, ModelError, OptionError, UnsupportedModelError
from layerwise.models import ElcConfig, ElcForMaskedLM
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from threads import threaded
from tier import first_fast

IDS = torch.randint(3, 97, (2, 9), generator=torch.Generator().manual_seed(2))
MASK = torch.ones_like(IDS).index_put((torch.tensor([0, 0]), torch.tensor([0, 1])), torch.tensor(0))
PLAN = "0 [1-2]*2 (2|3|5)*2 5.attn (1 2|0):sum"
OPTIONS = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}


def generated(model: object) -> list[list[int]]:
    return model.generate(IDS, attention_mask=MASK, **OPTIONS).tolist()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "stored", "renumbered"),
    [
        ("0-5", "0-5", "0-5"),
        ("0 4*3 2", "0 2 4", "0 2*3 1"),
        ("1 (3|5 1.mlp):gain=2 [5-3]*2", "1 3-5", "0 (1|3 0.mlp):gain=2 [3-1]*2"),
        ("a:0-2 b:1 a:1", "a:0 a:1 b:1 a:2", "0 1 3 2 1"),
    ],
)
def test_layers_are_stored_once_and_renumbered(text: str, stored: str, renumbered: str) -> None:
    plan = Plan.parse(text)
    assert compact.stored_layers(plan) == Plan.parse(stored)
    assert compact.over_stored(plan) == Plan.parse(renumbered)


@pytest.mark.parametrize("from_memory", first_fast([False, True]))
def test_a_compact_folder_opens_running_its_plan(home: Path, tmp_path: Path, from_memory: bool) -> None:
    stack = load(home)
    origin = save(stack if from_memory else home, PLAN, tmp_path / "m", compact=True, remote_code=True)
    assert (origin.compact, origin.gap) == (True, 0.0)
    opened = load(tmp_path / "m")
    assert opened.plan == opened.running == compact.over_stored(Plan.parse(PLAN))
    assert opened.depth == 5
    with stack.under(PLAN):
        expected = generated(stack.model)
        assert torch.equal(opened.model(IDS).logits, stack.model(IDS).logits)
    assert generated(opened.model) == expected
    with pytest.raises(ModelError, match=r"is running .* in place; .*stack\.leave\(\)"):
        opened.capture(input_ids=IDS)
    opened.leave()
    assert opened.plan is opened.running is None
    assert opened.model.config.num_hidden_layers == 5
    opened.capture(input_ids=IDS)


def test_visits_have_numbers_and_may_be_on_the_disk(home: Path, tmp_path: Path) -> None:
    save(home, PLAN, tmp_path / "m", compact=True, remote_code=True)
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "m", trust_remote_code=True)
    visits = whole.model.layers
    assert (visits[-1], list(visits[1:3])) == (list(visits)[-1], list(visits)[1:3])
    assert len(whole(IDS, output_hidden_states=True).hidden_states) == len(visits) + 1
    places = {"model.embed_tokens": "cpu", "model.layers": "disk", "model.norm": "cpu", "model.rotary_emb": "cpu"}
    offloaded = AutoModelForCausalLM.from_pretrained(
        tmp_path / "m", trust_remote_code=True, device_map={**places, "lm_head": "cpu"}, offload_folder=tmp_path / "off"
    )
    assert torch.equal(offloaded(IDS).logits, whole(IDS).logits)


def test_the_plan_stays_as_long_as_the_model(home: Path, tmp_path: Path) -> None:
    save(home, "0 1*3", tmp_path / "m", compact=True, prove=True)
    model = load(tmp_path / "m").model
    gc.collect()
    assert len(model(IDS, use_cache=True).past_key_values.layers) == 4


def test_repeats_cost_less_than_a_percent(tmp_path: Path) -> None:
    save("demo", "0-7 [2-8]*3 9-11", tmp_path / "m", compact=True, remote_code=True)
    folders = (Path(location_of("demo")), tmp_path / "m")
    sizes = [sum(file.stat().st_size for file in each.iterdir() if file.suffix != ".md") for each in folders]
    assert sizes[1] < 1.01 * sizes[0]


def test_several_models_become_one_folder(models: dict[str, Path], tmp_path: Path) -> None:
    origin = save(models, "a:0-2 (a:3|b:3)*2", tmp_path / "m", compact=True)
    assert (origin.gap, origin.note) == (0.0, "")
    stack = Stack.with_sources({name: load(folder) for name, folder in models.items()})
    with stack.under("a:0-2 (a:3|b:3)*2"):
        assert torch.equal(load(tmp_path / "m").model(IDS).logits, stack.model(IDS).logits)


def test_a_wrong_visit_in_the_code_is_noticed(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = remote_code.plan_record

    def wrong(*task: object) -> dict[str, object]:
        written = record(*task)  # type: ignore[arg-type]
        written["visits"][1]["layer"] = 2
        return written

    monkeypatch.setattr(remote_code, "plan_record", wrong)
    with pytest.raises(UnsupportedModelError, match="and of the plan are 1"):
        save(home, "0 1 2*2", tmp_path / "m", compact=True, remote_code=True)
    assert not (tmp_path / "m").exists()


def test_plain_transformers_opens_the_stored_layers(home: Path, tmp_path: Path) -> None:
    save(home, "0 (3|4)*2", tmp_path / "m", compact=True)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval()
    with torch.inference_mode():
        assert torch.equal(loaded(IDS).logits, load(home).logits("0 3 4", input_ids=IDS))


def test_a_configuration_without_its_plan_is_refused(home: Path, tmp_path: Path) -> None:
    save(home, "0 1", tmp_path / "m", compact=True)
    settings = json.loads((tmp_path / "m" / "config.json").read_text())
    settings["layerwise"]["plan"] = 2
    (tmp_path / "m" / "config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match="has no plan in the entry `layerwise`"):
        load(tmp_path / "m")


def test_code_for_an_ordinary_checkpoint_is_refused(home: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--remote-code has no effect"):
        save(home, "0 1", tmp_path / "m", remote_code=True)


OTHERS = ("gpt2", "gemma3_text", "mamba", "bert", "vit")
AT_NIGHT = ("mixtral", "falcon", "deepseek_v3", "gptj", "opt", "bloom")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*OTHERS, *(pytest.param(kind, marks=pytest.mark.nightly) for kind in AT_NIGHT)])
def test_the_code_runs_the_plan_of_other_kinds(kind: str, tmp_path: Path) -> None:
    one = next(one for one in SUPPORTED if one.model_type == kind)
    model = build(one)
    model.save_pretrained(tmp_path / "home")
    origin = save(
        tmp_path / "home",
        "0 1*2 (2|3)*2 4 0",
        tmp_path / "m",
        compact=True,
        remote_code=True,
        inputs=inputs(one, model),
    )
    assert (origin.proof, origin.note) == ("logits", "")


CARRIED = ("layerwise.models.elc.", "layerwise.stack.history")


def test_the_code_of_a_checkpoint_is_that_of_its_model_and_little_else() -> None:
    text = joined_modules("layerwise.models.elc.encoder")
    modules = re.findall(r"^# -- (layerwise\.\S+)$", text, re.MULTILINE)
    assert {each for each in modules if not each.startswith(CARRIED)} == {"layerwise.errors"}
    libraries = re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE)
    assert {*libraries} <= {*sys.stdlib_module_names, "huggingface_hub", "torch", "transformers"}


def test_automatic_classes_of_a_head_and_its_base() -> None:
    assert automatic_classes(ElcForMaskedLM)["AutoModelForSequenceClassification"] == "ElcForSequenceClassification"


WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "layerwise":
            raise ModuleNotFoundError("layerwise is not installed here")
sys.meta_path.insert(0, Without())
import json, torch, transformers
folders, ids, mask = json.loads(sys.argv[1])
ids, mask = torch.tensor(ids), torch.tensor(mask)
options = dict(max_new_tokens=6, do_sample=False, pad_token_id=0)
for folder, kind in folders.items():
    model = getattr(transformers, kind).from_pretrained(folder, trust_remote_code=True).eval()
    runs = [{}, {"use_cache": False}, {"cache_implementation": "static"}] if model.can_generate() else []
    texts = [model.generate(ids, attention_mask=mask, **options, **run).tolist() for run in runs]
    with torch.inference_mode():
        logits = model(ids).logits
        model.save_pretrained(folder + "-again")
        again = getattr(transformers, kind).from_pretrained(folder + "-again", trust_remote_code=True).eval()
        same = torch.equal(again(ids).logits, logits)
    torch.save(logits, folder + ".pt")
    assert not [name for name in sys.modules if name.partition(".")[0] == "layerwise"]
    states = len(model(ids, output_hidden_states=True).hidden_states)
    print(json.dumps({"texts": texts, "same": same, "states": states}))
"""

Outcome = tuple[dict[str, object], torch.Tensor]
"""Texts and logits of a process that cannot import layerwise."""

ELC = {"elc": "0-5", "ltg": "0-2 [2-3]*2 (4|5)"}
"""Plans of the bundled models by variant; the first is the identity plan."""


def elc(variant: str) -> ElcForMaskedLM:
    torch.manual_seed(0)
    return ElcForMaskedLM(ElcConfig.of_size("tiny", variant=variant, vocab_size=100)).eval()


@pytest.fixture(scope="module")
def elsewhere(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    root = tmp_path_factory.mktemp("elsewhere")
    save(home, PLAN, root / "llama", compact=True, remote_code=True)
    kinds = {"llama": "AutoModelForCausalLM"}
    for variant, plan in ELC.items():
        elc(variant).save_pretrained(root / f"home-{variant}")
        save(root / f"home-{variant}", plan, root / variant, compact=plan != "0-5", remote_code=True)
        kinds[variant] = "AutoModelForMaskedLM"
    task = json.dumps([{str(root / name): kind for name, kind in kinds.items()}, IDS.tolist(), MASK.tolist()])
    environment = {name: value for name, value in threaded().items() if name != "PYTHONPATH"}
    environment["HF_MODULES_CACHE"] = str(root / "modules")
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT, task], capture_output=True, text=True, check=False, env=environment
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()[-len(kinds) :]
    return {
        name: (json.loads(line), torch.load(root / f"{name}.pt", weights_only=True))
        for name, line in zip(kinds, lines, strict=True)
    }


@pytest.mark.slow
def test_transformers_runs_the_plan_where_layerwise_is_not_installed(home: Path, elsewhere: dict[str, Outcome]) -> None:
    result, logits = elsewhere["llama"]
    stack = load(home)
    with stack.under(PLAN), torch.inference_mode():
        assert result["texts"] == [generated(stack.model)] * 3
        assert torch.equal(logits, stack.model(IDS).logits)
    assert result["same"]
    assert result["states"] == len(Plan.parse(PLAN).steps()) + 1


@pytest.mark.slow
@pytest.mark.parametrize("variant", ELC)
def test_elc_models_open_where_layerwise_is_not_installed(variant: str, elsewhere: dict[str, Outcome]) -> None:
    result, logits = elsewhere[variant]
    stack = load(elc(variant))
    with stack.under(ELC[variant]), torch.inference_mode():
        assert torch.equal(logits, stack.model(IDS).logits)
    assert result["same"]
