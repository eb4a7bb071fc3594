"""Several threads on one model: every pass is right, or is refused, and the model is left as it was found."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from conftest import tiny_llama
from layerwise.errors import ModelError
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from stack.makers import bart
from stack.test_verify import state_of
from tier import first_fast

PLANS = ("0 (1|2 3)*2 4 5", "[(5|4):sum 0]*2 (1|(2|3):gain=2)", "5*3 (0|1|2)", "3 1*2 0 2.mlp")
PASSES = [pytest.param(100), pytest.param(400, marks=pytest.mark.slow), pytest.param(1000, marks=pytest.mark.nightly)]
BATCHES = [torch.randint(3, 97, (1, 5), generator=torch.Generator().manual_seed(seed)) for seed in range(4)]


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def alike(found: Tensor, right: Tensor) -> bool:
    return torch.allclose(found, right, rtol=1e-4, atol=1e-4)


def in_threads(count: int, work: Callable[[int], object]) -> list[object]:
    together = threading.Barrier(count)

    def one(number: int) -> object:
        together.wait()
        try:
            return work(number)
        except ModelError as refused:
            return refused

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def expected(stack: Stack, plan: Plan) -> list[Tensor]:
    with torch.inference_mode(), stack.under(plan):
        return [stack.model(ids).logits for ids in BATCHES]


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("threads", first_fast([4, 2]))
def test_passes_of_several_threads_under_one_plan_are_all_right(threads: int, passes: int) -> None:
    each = range(passes // (threads * len(PLANS)))
    model = tiny_llama()
    stack = load(model)
    before = state_of(model)
    for text in PLANS:
        plan = Plan.parse(text)
        right = expected(stack, plan)

        def work(number: int, right: list[Tensor] = right) -> int:
            with torch.inference_mode():
                return sum(alike(model(BATCHES[number]).logits, right[number]) for _ in each)

        with stack.under(plan):
            assert in_threads(threads, work) == [len(each)] * threads, plan
    assert state_of(model) == before


@pytest.mark.parametrize("threads", first_fast([4, 2]))
def test_two_stacks_over_one_model_wait_for_none_and_are_refused(threads: int) -> None:
    """Each thread enters a plan through its own Stack: it runs correctly or is refused."""
    model = tiny_llama()
    stacks = [load(model) for _ in range(threads)]
    before = state_of(model)
    plans = [Plan.parse(text) for text in PLANS]
    right = [expected(stacks[0], plan)[0] for plan in plans]

    def work(number: int) -> list[bool | str]:
        found: list[bool | str] = []
        for _ in range(15):
            try:
                with torch.inference_mode(), stacks[number].under(plans[number]):
                    found.append(alike(model(BATCHES[0]).logits, right[number]))
            except ModelError as refused:
                found.append(str(refused))
        return found

    answers = [answer for found in in_threads(threads, work) for answer in found]  # type: ignore[attr-defined]
    others = [answer for answer in answers if answer is not True]
    assert not [answer for answer in others if "in place; leave `with" not in str(answer)]
    assert True in answers
    assert state_of(model) == before


def test_captures_of_several_threads_are_right_and_a_plan_in_place_waits_for_them() -> None:
    model = tiny_llama()
    stacks = [load(model) for _ in range(3)]
    before = state_of(model)
    plan = Plan.parse("0 (1|2.mlp 3) 2.attn 2")
    right = expected(stacks[0], plan)

    def work(number: int) -> list[bool | str]:
        found: list[bool | str] = []
        with torch.inference_mode():
            for _ in range(10):
                try:
                    if number == 0:
                        with stacks[0].under(plan):
                            found.append(alike(model(BATCHES[0]).logits, right[0]))
                    else:
                        logits = stacks[number].logits(plan, input_ids=BATCHES[number])
                        found.append(alike(logits, right[number]))
                except ModelError as refused:
                    found.append(str(refused))
        return found

    in_place, *stepwise = in_threads(3, work)
    assert in_place == [True] * 10
    assert all(answer is True or "is running" in answer for found in stepwise for answer in found)  # type: ignore[attr-defined]
    assert state_of(model) == before


def test_a_plan_is_left_only_when_the_passes_of_other_threads_have_ended() -> None:
    model = tiny_llama()
    stack = load(model)
    plan = Plan.parse("0 (5|4) 0")
    right = expected(stack, plan)[0]
    reached, go_on = threading.Event(), threading.Event()

    def slowly(*_: object) -> None:
        reached.set()
        assert go_on.wait(60)

    answers: list[Tensor] = []

    def work() -> None:
        with torch.inference_mode():
            answers.append(model(BATCHES[0]).logits)

    pause = model.model.layers[4].register_forward_pre_hook(slowly)
    worker = threading.Thread(target=work)
    with stack.under(plan):
        worker.start()
        assert reached.wait(60)
        threading.Timer(0.1, go_on.set).start()
    assert go_on.is_set()
    worker.join()
    pause.remove()
    assert alike(answers[0], right)


def test_one_thread_may_plan_both_sides_of_a_model_and_two_threads_may_not() -> None:
    model = bart()
    encoder, decoder = (Stack(model, f"model.{side}.layers") for side in ("encoder", "decoder"))

    def enter(_: int) -> None:
        with decoder.under(Plan.parse("0")):
            pass

    with encoder.under(Plan.parse("2 0")):
        with decoder.under(Plan.parse("1*4")), torch.inference_mode():
            assert model(BATCHES[0]).logits.shape == (1, 5, 97)
        (refused,) = in_threads(1, enter)
    assert "another thread is running" in str(refused)
    enter(0)


def trained(model: LlamaForCausalLM, ids: Tensor) -> dict[str, Tensor]:
    gradients = torch.autograd.grad(model(ids, labels=ids).loss, list(model.parameters()), allow_unused=True)
    named = zip(model.named_parameters(), gradients, strict=True)
    return {name: gradient for (name, _), gradient in named if gradient is not None}


def test_gradients_of_two_threads_are_their_own_also_recomputed() -> None:
    model = tiny_llama()
    stack = load(model)
    for checkpointing in (False, True):
        model.train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        with stack.under(Plan.parse("0 (1|2 3)*2 4 5"), single_pass=True):
            right = [trained(model, ids) for ids in BATCHES[:2]]
            found = in_threads(2, lambda number: [trained(model, BATCHES[number]) for _ in range(3)])
        for expected_here, repeated in zip(right, found, strict=True):
            for once in repeated:  # type: ignore[attr-defined]
                assert once.keys() == expected_here.keys()
                for name, gradient in once.items():
                    torch.testing.assert_close(gradient, expected_here[name])
