"""The server of the playground: its numbers are those of sweep, generate and save, and it survives bad input."""

import asyncio
import gc
import json
import random
import shlex
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from layerwise import Corpus, demo_corpus, save, sweep
from layerwise.cli.app import build
from layerwise.errors import LayerwiseError, RunError
from layerwise.measure.interventions import sweep as sweeping
from layerwise.measure.interventions.progressive import ProgressiveImportance
from layerwise.measure.language.continuations import continue_prompts
from layerwise.measure.language.evaluation_data import tokenize
from layerwise.measure.stats.effects import compute_effects
from layerwise.plan import Plan, families
from layerwise.results.vocabulary import DELTA
from layerwise.studies.play.playground import MAX_TEXT
from layerwise.studies.play.worker import Job, StoppedError, Worker
from studies.play.playing import Running, client, demo, events, open_playground, run_server
from swarm.serve.serving import TOKEN, run_async, wait_until

PARAGRAPHS = [document.text for document in demo_corpus(texts=10, questions=0).documents]
TEXT = "\n\n".join(" ".join(paragraph.split())[:160].strip() for paragraph in PARAGRAPHS)


def draw_plan(draw: random.Random) -> str:
    """Draw a plan of the demo model: skipped, moved, repeated, parallel, damped and quantized layers."""
    stages = [str(layer) for layer in range(12)]
    for _ in range(draw.randint(1, 4)):
        first = draw.randrange(len(stages))
        last = min(len(stages), first + draw.randint(1, 3))
        part = stages[first:last]
        match draw.choice(["skip", "move", "reverse", "repeat", "parallel", "damp", "quantize", "sublayer"]):
            case "skip":
                part = [] if len(stages) > len(part) else part
            case "move":
                draw.shuffle(part)
            case "reverse":
                part = part[::-1]
            case "repeat":
                part = [f"[{' '.join(part)}]*2"]
            case "parallel":
                part = [f"({'|'.join(part)})"]
            case "damp":
                part = [f"({' '.join(part)}):gain=0.5"]
            case "quantize":
                part = [f"Q4_0:{each}" if each.isdigit() else each for each in part]
            case "sublayer":
                part = [f"{each}.mlp" if each.isdigit() else each for each in part]
        stages[first:last] = part
    return str(Plan.parse(" ".join(stages)))


def join_tokens(items: list[dict[str, Any]], column: str) -> str:
    return "".join(item.get("token", "") for item in items if item.get("column") == column)


def compare_with_library(running: Running, plan: str) -> None:
    """Check that a plan has the difference of a sweep and the tokens of greedy generation."""
    score = running.post("/api/score", {"plan": plan, "text": TEXT})[-1]["result"]
    data = tokenize(demo(), Corpus.of(TEXT.split("\n\n")), batch_tokens=512)
    effects = compute_effects(sweeping.sweep(demo(), [plan], data), "0-11")
    expected = next((row for row in effects if row.metric == DELTA), None)
    for name, value in (("delta", "value"), ("low", "low"), ("high", "high")):
        want = 0.0 if expected is None else getattr(expected, value)
        assert score["difference"][name] == pytest.approx(want, abs=1e-5)
    written = running.post("/api/generate", {"plan": plan, "prompt": "reverse k d a z =", "new_tokens": 6})
    (continuation,) = continue_prompts(demo(), [Plan.parse(plan)], ["reverse k d a z ="], 6)
    column = "original" if plan == "0-11" else "plan"
    assert join_tokens(written, column) == continuation.text


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def compare_files(running: Running, plan: str, folder: Path, *, through_page: bool) -> bool:
    """Check that the command of the page saves the files of `layerwise.save`, and return False if it cannot.

    Run by the page, the command has another process; otherwise it runs here, which is ten times as fast.
    """
    described = running.post_json("/api/plan", {"plan": plan})
    compact = "(" in plan or ".mlp" in plan
    if described["can_save"]["folder"] is not None:
        with pytest.raises(LayerwiseError, match="quantized"):
            save("demo", plan, folder / "expected", compact=compact)
        return False
    if through_page:
        assert running.post("/api/save", {"plan": plan, "output": "saved"})[-1]["exit"] == 0
    else:
        words = shlex.split(described["commands"]["save"].replace("NAME", "saved"))
        assert words.pop(0) == "layerwise"
        assert build(word=words[0])(words, print_error=False, exit_on_error=False) == 0
    save("demo", plan, folder / "expected", compact=compact)
    saved, expected = read_files(folder / "saved"), read_files(folder / "expected")
    assert saved.keys() == expected.keys() >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert saved == expected, plan
    return True


@pytest.mark.parametrize(
    ("seed", "plans"), [(0, 3), *(pytest.param(seed, 25, marks=pytest.mark.nightly) for seed in range(1, 9))]
)
def test_figures_texts_and_files_equal_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, plans: int
) -> None:
    """Differences, intervals, tokens and files of 200 random plans equal those of sweep, generate and save."""
    draw, saved = random.Random(seed), 0
    with run_server() as running:
        compare_with_library(running, "0-11")
        for number in range(plans):
            plan = draw_plan(draw)
            compare_with_library(running, plan)
            if plans > 3:  # loading the model again for each proof takes most of the time
                folder = tmp_path / str(number)
                folder.mkdir()
                monkeypatch.chdir(folder)
                saved += compare_files(running, plan, folder, through_page=number == 0)
    assert plans <= 3 or saved > plans / 3


@pytest.mark.parametrize(("seed", "requests"), [(2, 8), pytest.param(3, 100, marks=pytest.mark.slow)])
def test_canceled_requests_leave_nothing_behind(seed: int, requests: int) -> None:
    """After requests that are canceled at random, the next answers are right and the worker is idle."""
    draw = random.Random(seed)
    with run_server() as running:
        for _ in range(requests):
            plan, read = draw_plan(draw), draw.randint(1, 4)
            path, body = draw.choice(
                [
                    ("/api/generate", {"plan": plan, "prompt": "reverse k d a z =", "new_tokens": 40}),
                    ("/api/score", {"plan": plan, "text": TEXT}),
                    ("/api/importance", {}),
                ]
            )
            running.post(path, body, read=read)
        compare_with_library(running, draw_plan(draw))
        wait_until(lambda: running.worker.is_idle)


def test_importance_ends_with_the_effects_of_a_sweep() -> None:
    """The strip is complete with the effects and intervals of a sweep, and shows layers while it is measured."""
    corpus = demo_corpus(texts=20, questions=0, characters=120)
    data = tokenize(demo(), corpus)
    importance = ProgressiveImportance(demo(), data)
    assert importance.measure_round() == list(range(12))
    assert all(score.low is not None and score.documents < data.documents for score in importance.scores.values())
    while not importance.is_complete:
        importance.measure_round()
    assert importance.measure_round() == list(range(12)), "two pages may ask for the last round"
    members = families.leave_one_out(12)
    losses = sweeping.sweep(demo(), members, data)
    rows = {row.plan: row for row in compute_effects(losses, "0-11") if row.metric == DELTA}
    for layer, member in enumerate(members):
        found, expected = importance.scores[layer], rows[str(member.plan)]
        assert (found.value, found.low, found.high) == pytest.approx(
            (expected.value, expected.low, expected.high), abs=1e-5
        )


def test_an_interrupted_round_keeps_its_losses() -> None:
    """A round that makes room for a request continues with the plans that it has not measured."""
    importance = ProgressiveImportance(demo(), tokenize(demo(), demo_corpus(texts=10, questions=0)))
    calls = 0

    def stop_after_three() -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise StoppedError

    with pytest.raises(StoppedError):
        importance.measure_round(stop_after_three)
    kept = set(importance.measured_plans)
    assert 0 < len(kept) < 13
    assert importance.measure_round() == list(range(12))
    assert kept < set(importance.measured_plans)


def test_a_stored_sweep_colors_the_strip(tmp_path: Path) -> None:
    """With a stored sweep nothing is measured; a run without effects of layers is refused."""
    corpus = demo_corpus(texts=8, questions=0)
    result = sweep(demo(), corpus, families=("leave_one_out",), run=tmp_path / "run", similarity=False, tokens="all")
    with client(open_playground(str(result.folder))) as http:
        (event,) = events(http.post("/api/importance", json={}))
    assert event["done"]
    assert event["measured"] == 12
    assert "layer 0 costs most: +" in event["finding"]
    other = sweep(demo(), corpus, families=(), plans=("0-5",), run=tmp_path / "other", similarity=False, tokens="all")
    with pytest.raises(RunError, match="leave_one_out"):
        open_playground(str(other.folder))


def test_background_jobs_make_room() -> None:
    """A background job stops at its next check if a request waits, and runs on otherwise."""
    began, order = threading.Event(), []

    def background(job: Job) -> None:
        began.set()
        while True:
            job.check()

    def request(job: Job) -> None:
        order.append("request")
        job.emit({"text": "done"})

    @run_async
    async def run() -> None:
        worker = Worker()
        first = worker.stream(background, is_background=True)
        waiting = asyncio.ensure_future(anext(first))
        await asyncio.to_thread(began.wait)
        assert [item async for item in worker.stream(request)] == [{"text": "done"}]
        with pytest.raises(StoppedError):
            await waiting
        worker.close()

    run()
    assert order == ["request"]


def test_errors_of_a_job_reach_its_request() -> None:
    """What a job raises, its request raises; the worker goes on."""

    def fail(job: Job) -> None:
        raise LayerwiseError("no")

    @run_async
    async def run() -> None:
        worker = Worker()
        with pytest.raises(LayerwiseError, match="no"):
            [item async for item in worker.stream(fail)]
        assert [item async for item in worker.stream(lambda job: job.emit({"n": 1}))] == [{"n": 1}]
        worker.close()

    run()


JSON = {"Content-Type": "application/json"}
PLANS = [
    *("", " ", "x", "12", "0-99", "0--3", "(0|1", "0|1)", "[0 1]*0", "0*10001", "0-3 )", "(0):gain=nan", "0.att"),
    *("Q9_0:1", "a:1", "-1", "0-3,4", "é", "0\x00", "0" * 5000, "(" * 200, "0*9999999999", "[[0]*100]*101"),
]
BODIES: list[tuple[str, Any]] = [
    *(("/api/plan", {"plan": plan}) for plan in PLANS),
    *(("/api/plan", body) for body in ({}, [], "0-3", {"plan": 3}, {"plan": ["0"]}, {"plan": "0", "more": 1})),
    ("/api/generate", {"plan": "0-11", "prompt": "a" * 9000}),
    ("/api/generate", {"plan": "0-11", "prompt": "a b " * 1900}),
    ("/api/generate", {"plan": "0-11", "prompt": "a", "new_tokens": 0}),
    ("/api/generate", {"plan": "0-11", "prompt": "a", "new_tokens": 10**9}),
    ("/api/generate", {"plan": "0-11", "prompt": "a", "temperature": -1}),
    ("/api/generate", {"plan": "0-11", "prompt": "a", "seed": 2**32}),
    ("/api/generate", {"plan": "0-99", "prompt": "a"}),
    ("/api/score", {"plan": "0-11", "text": ""}),
    ("/api/score", {"plan": "0-11", "text": " \n\n "}),
    ("/api/score", {"plan": "0-11", "text": "a" * (MAX_TEXT + 1)}),
    ("/api/score", {"plan": "(0", "text": "a text"}),
    ("/api/importance", {"text": " "}),
    ("/api/importance", {"text": 5}),
    *(("/api/save", {"plan": "0-11", "output": name}) for name in ("", "../x", "/etc/x", "a/b", ".hidden", "a" * 99)),
    ("/api/save", {"plan": "0-11", "output": "x", "format": "pickle"}),
    ("/api/start", {"plan": "0-11", "verb": "serve"}),
    ("/api/start", {"plan": "0-11", "verb": "search", "budget": "layers=9; rm -rf /"}),
]


def test_bad_input_gets_a_message() -> None:
    """Every bad body, path, header and encoding gets one clear message, and the server goes on."""
    with client() as http:
        for path, body in BODIES:
            answer = http.post(path, json=body)
            assert answer.status_code in ((200, 400) if "plan" in path else (400,)), (path, body)
            message = answer.json()["error"]["message"]
            assert len(message) > 10, (path, body)
            assert "Traceback" not in message
        raw = [
            (b"{", JSON, 400),
            (b'{"plan": "\xff"}', JSON, 400),
            (b'{"plan": "0-11", "prompt": "\\ud800"}', JSON, 400),
            (b'{"plan": NaN}', JSON, 400),
            (b'{"plan": "0-11"}', {"Content-Type": "text/plain"}, 415),
            (b" " * 5_000_000, JSON, 413),
            (b'{"plan": "0-11"}', {**JSON, "Host": "example.org"}, 403),
            (b'{"plan": "0-11"}', {**JSON, "Origin": "https://example.org"}, 403),
            (b'{"plan": "0-11"}', {**JSON, "Origin": "null"}, 403),
        ]
        for content, headers, status in raw:
            path = "/api/generate" if b"prompt" in content else "/api/plan"
            answer = http.post(path, content=content, headers=headers)
            assert answer.status_code == status, (content[:40], answer.text)
            assert answer.json()["error"]["message"]
        assert http.get("/page/../app.py").status_code == 404
        assert http.get("/page/nothing.js").status_code == 404
        assert http.post("/api/plan", json={"plan": "0-11"}).json()["plan"] == "0-11"
    assert len(BODIES) + len(raw) >= 60


def test_plan_errors_point_at_the_character() -> None:
    with client() as http:
        error = http.post("/api/plan", json={"plan": "0-3 (4|5"}).json()["error"]
    assert error["position"] == 4
    assert "\n" not in error["message"]


def test_a_token_protects_everything_but_the_page() -> None:
    with client(host="0.0.0.0", tokens=(TOKEN,)) as http:
        assert http.get("/").status_code == 200
        assert http.get("/api/state").status_code == 401
        assert http.post("/api/plan", json={"plan": "0-11"}).status_code == 401
        assert http.get("/api/state", headers={"Authorization": f"Bearer {TOKEN}"}).json()["depth"] == 12


def test_the_page_describes_every_stage() -> None:
    """Joined stage texts are the plan, and costs count weights once."""
    with client() as http:
        for plan in ("0-11", "0-3 (4|5)*2 6.mlp Q4_0:8", "[0-3]*2 4-11", "11-0"):
            found = http.post("/api/plan", json={"plan": plan}).json()
            assert found["plan"] == plan
            assert str(Plan.parse(" ".join(stage["text"] for stage in found["stages"]))) == plan
        twice = http.post("/api/plan", json={"plan": "0-11 0-11"}).json()
    assert twice["cost"]["parameters"] == twice["original"]["parameters"]
    assert twice["cost"]["slots"] == 24


def test_a_sampled_text_equals_generate() -> None:
    """With a temperature, the seed gives the text that transformers generates with that seed."""
    body = {"plan": "0-4 6-11", "prompt": "def f(", "new_tokens": 12, "temperature": 0.8, "seed": 3}
    with client() as http:
        first, again = (events(http.post("/api/generate", json=body)) for _ in range(2))
    texts = [
        "".join(item.get("token", "") for item in found if item.get("column") == "plan") for found in (first, again)
    ]
    stack = demo()
    ids = stack.tokenizer("def f(", return_tensors="pt")["input_ids"]
    torch.manual_seed(3)
    with stack.under("0-4 6-11"):
        made = stack.model.generate(ids, do_sample=True, temperature=0.8, top_k=None, top_p=None, max_new_tokens=12)
    expected = stack.tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True)
    assert texts == [expected, expected]


def test_shades_are_differences_of_log_likelihood() -> None:
    """A token's shade is how many nats less likely the other model finds it."""
    body = {"plan": "0-4 6-11", "prompt": "reverse k d a z =", "new_tokens": 4}
    with client() as http:
        found = events(http.post("/api/generate", json=body))
    shades = next(item["shades"] for item in found if item.get("column") == "original" and "shades" in item)
    stack = demo()
    ids = stack.tokenizer("reverse k d a z =", return_tensors="pt")["input_ids"]
    made = stack.model.generate(ids, do_sample=False, max_new_tokens=4)
    logs = [
        stack.logits(plan, input_ids=made)
        .log_softmax(-1)[0, ids.shape[1] - 1 : -1]
        .gather(-1, made[0, ids.shape[1] :, None])
        for plan in ("0-11", "0-4 6-11")
    ]
    assert shades == pytest.approx((logs[0] - logs[1])[:, 0].tolist(), abs=1e-4)


@pytest.mark.slow
def test_commands_save_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saving runs `layerwise save`, whose files equal those of the Python function; a second command has to wait."""
    monkeypatch.chdir(tmp_path)
    with client() as http:
        *lines, done = events(http.post("/api/save", json={"plan": "0-4 6-11", "output": "shallow"}))
        command = http.post("/api/plan", json={"plan": "0-4 6-11"}).json()["commands"]["save"]
    assert done["exit"] == 0
    assert lines[0]["line"] == f"$ {command}".replace("NAME", "shallow")
    assert any("identical logits" in item["line"] for item in lines)
    save("demo", "0-4 6-11", tmp_path / "expected")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "shallow" / name).read_bytes() == (tmp_path / "expected" / name).read_bytes()


def test_json_has_no_nan() -> None:
    """Perplexities too large for a number are null, since JSON has no infinity."""
    with client() as http:
        answer = http.post("/api/score", json={"plan": "(0):gain=1e30 1-11", "text": TEXT})
    for line in answer.text.splitlines():
        if line.startswith("data: "):
            json.loads(line[6:], parse_constant=lambda name: pytest.fail(name))


@pytest.mark.nightly
def test_memory_is_stable() -> None:
    """After 1,000 requests for random plans the process is at most 5 % larger than after 100."""
    draw = random.Random(4)

    def read_size() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1])

    with run_server() as running:
        sizes = []
        for number in range(1000):
            plan, prompt = draw_plan(draw), f"reverse {number}"
            running.post("/api/generate", {"plan": plan, "prompt": prompt, "new_tokens": 2})
            running.post("/api/score", {"plan": plan, "text": f"{number} {PARAGRAPHS[number % len(PARAGRAPHS)][:60]}"})
            if number in (100, 999):
                sizes.append(read_size())
    assert sizes[1] <= 1.05 * sizes[0]
