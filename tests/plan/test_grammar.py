"""The text of a plan, and the edits of a plan."""

from collections.abc import Callable

import pytest

from layerwise.errors import PlanError
from layerwise.plan import SUBLAYERS, Block, Group, Plan, Reduction, Visit, edits, parse, write

INNER = Plan((Visit(0), Group((Plan.of([1]), Plan((Block(Plan.of([2, 3]), 2),))))))
WRITTEN = {
    "0-31": Plan.of(range(32)),
    "0-13 18-31": Plan.of([*range(14), *range(18, 32)]),
    "0-2 15*4 18": Plan((Visit(0), Visit(1), Visit(2), Visit(15, 4), Visit(18))),
    "(14|15|16|17)": Plan((Group(tuple(Plan.of([layer]) for layer in (14, 15, 16, 17))),)),
    "(6 7|8 9):sum": Plan((Group((Plan.of([6, 7]), Plan.of([8, 9])), Reduction("sum")),)),
    "(6|8):gain=0.5*2": Plan((Group((Plan.of([6]), Plan.of([8])), Reduction("gain", 0.5), 2),)),
    "(6):gain=-2": Plan((Group((Plan.of([6]),), Reduction("gain", -2)),)),
    "[45-51]*2": Plan((Block(Plan.of(range(45, 52)), 2),)),
    "12.attn": Plan((Visit(12, sublayer="attn"),)),
    "12.attn 12.mlp*2 12": Plan((Visit(12, sublayer="attn"), Visit(12, 2, "mlp"), Visit(12))),
    "2-0.attn 0 1": Plan((*(Visit(layer, sublayer="attn") for layer in (2, 1, 0)), Visit(0), Visit(1))),
    "(12.attn|12.mlp):sum": Plan((Group(tuple(Plan((Visit(12, sublayer=p),)) for p in SUBLAYERS), Reduction("sum")),)),
    "a:0-3 b:4-7": Plan(tuple(Visit(layer, source="a" if layer < 4 else "b") for layer in range(8))),
    "run-2:5.attn m_3:3*2": Plan((Visit(5, sublayer="attn", source="run-2"), Visit(3, 2, source="m_3"))),
    "A:7-5.mlp": Plan(tuple(Visit(layer, sublayer="mlp", source="A") for layer in (7, 6, 5))),
    "(a:1|b:1):sum": Plan((Group(tuple(Plan((Visit(1, source=name),)) for name in "ab"), Reduction("sum")),)),
    "[gain:0 sum:0]*2": Plan((Block(Plan((Visit(0, source="gain"), Visit(0, source="sum"))), 2),)),
    "[[0 (1|[2 3]*2)]*2 4]*3": Plan((Block(Plan((Block(INNER, 2), Visit(4))), 3),)),
}


@pytest.mark.parametrize(("text", "plan"), WRITTEN.items())
def test_the_text_means_the_plan_and_is_its_own_form(text: str, plan: Plan) -> None:
    assert parse(text) == plan
    assert write(plan) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("  0 1   2\t3\n", "0-3"),
        ("0-1 2-3", "0-3"),
        ("007", "7"),
        ("5*1", "5"),
        ("0 1 2 1 0 5", "0-2 1 0 5"),
        ("0 1 2*2 3 4 5", "0 1 2*2 3-5"),
        ("( 0 | 1 ):mean*2", "(0|1)*2"),
        ("(0|1):gain=+2.50", "(0|1):gain=2.5"),
        ("(0|1):gain=-0", "(0|1):gain=0"),
        ("(0|1):gain=1e-7", "(0|1):gain=1e-07"),
        ("[ 0 ]*2", "[0]*2"),
        ("0-1.mlp", "0.mlp 1.mlp"),
        ("0.mlp 1.mlp 2-3.mlp", "0-3.mlp"),
        ("0 1 2.attn 3 4", "0 1 2.attn 3 4"),
        ("0.attn 1.attn 2.mlp 3.mlp", "0.attn 1.attn 2.mlp 3.mlp"),
        ("0.mlp 1.mlp*2 2.mlp", "0.mlp 1.mlp*2 2.mlp"),
        ("a:0 a:1 a:2 b:3", "a:0-2 b:3"),
        ("a:0 1 2 3", "a:0 1-3"),
        ("a:0-1 A:2", "a:0 a:1 A:2"),
    ],
)
def test_other_spellings_have_one_written_form(text: str, canonical: str) -> None:
    assert write(parse(text)) == canonical


REFUSED = [
    ("", 0, "at least one layer.*for example 0-13"),
    (" \n ", 3, "at least one layer"),
    ("0-", 2, "a range must end with a layer, as in 0-13"),
    ("0-3*2", 3, r"write \[0-3\]\*k to run the range k times"),
    ("0*2-3", 3, r"a range must connect two layer numbers, as in 0-13 or 0-13\.attn"),
    ("-1", 0, "layers count from 0"),
    ("0 - 3", 2, "layers count from 0, and a range has no spaces, as in 0-13"),
    ("5*0", 2, "a repeat count must be at least 1"),
    ("5*", 2, r"a repeat must have a count, as in 15\*4"),
    ("5 *2", 2, "a repeat must directly follow the layer, group or block it repeats, as"),
    ("5*2*3", 3, "a stage must have only one repeat count; multiply them, or write"),
    ("5*1.5", 3, "a repeat count must be an integer and follow the sublayer, as in"),
    ("0 (1|2", 2, r"this \( is never closed"),
    ("[0 1", 0, r"this \[ is never closed"),
    ("(0|1]", 4, r"the open \( must be closed with \)"),
    ("[0|1]", 2, "branches of a group"),
    ("0|1", 1, r"branches must be inside a group, as in \(14\|15\)"),
    ("0)", 1, r"this \) has no matching \("),
    ("0]", 1, r"this \] has no matching \["),
    ("()", 1, "a branch must run at least one layer: write its layers, for example"),
    ("[]", 1, "a block must run at least one layer: write its layers, for example 0-13"),
    ("(0)(1)", 3, "separated by a space"),
    ("0,1", 1, "separated by spaces"),
    ("(0|1):max", 6, "a merge rule must be :mean, :sum or :gain=2"),
    ("(0|1):gain", 10, r"a gain must have a number, as in :gain=2 or :gain=0\.5"),
    ("(0|1):gain=nan", 10, r"a gain must have a number, as in :gain=2 or :gain=0\.5"),
    ("(0|1):gain=1e999", 5, "gain must be finite"),
    ("(0|1):gain=" + "1" * 31, 11, "at most 30 characters"),
    ("(0|1)*2:sum", 7, "a merge rule must directly follow its group, before the repeat:"),
    ("[0]:sum", 3, "a merge rule must directly follow its group, before the repeat:"),
    ("0 :sum", 2, r"a merge rule must directly follow its group, as in \(14\|15\):sum"),
    ("0-9999 0", 7, "a plan must run at most 10,000 layers in total"),
    ("10000", 0, "a layer must be from 0 to 9999"),
    ("9" * 5000, 0, "at most 5 digits"),
    ("[[[0]*9999]*9999]*9999", 1, "a plan must run at most 10,000 layers in total"),
    ("(" * 100_000, 50, "groups and blocks must be nested at most 50 deep"),
    ("12.", 3, r"named, as in 12\.attn or 12\.mlp$|12\.mlp\n"),
    ("12.5", 3, "a layer must be an integer, such as 12, and a sublayer must be named,"),
    ("12.foo", 3, "unknown sublayer 'foo'"),
    ("0 12.attm*2", 5, "did you mean attn"),
    ("12." + "a" * 5000, 3, "unknown sublayer 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"),
    ("12.attn.mlp", 7, r"a sublayer must directly follow its layer: 12\.attn, \(12\.attn\|13\.attn\),"),
    ("(12|13).attn", 7, r"\(12\.attn\|13\.attn\)"),
    ("[12].mlp", 4, r"a sublayer must directly follow its layer: 12\.attn, \(12\.attn\|13\.attn\),"),
    ("12 .mlp", 3, r"a sublayer must directly follow its layer: 12\.attn, \(12\.attn\|13\.attn\),"),
    ("12*2.mlp", 4, "a repeat count must be an integer and follow the sublayer, as in"),
    ("0.attn-3", 6, r"a range must connect two layer numbers, as in 0-13 or 0-13\.attn"),
    ("0-3.attn*2", 8, r"0-3\.attn\*k is ambiguous: write \[0-3\.attn\]\*k to run the range k times,"),
    ("12.attn2", 7, "separated by a space"),
    ("12.٣", 3, r"a sublayer must be named, as in 12\.attn or 12\.mlp"),
    ("0 layer", 2, "a model name must be followed by a colon and a layer, as in a:0-3"),
    ("a :0", 0, "a model name must be followed by a colon and a layer, as in a:0-3"),
    ("a:", 2, "a model name must directly precede each of its layers, as in a:0-3 or"),
    ("a:(0|1)", 2, r"as in a:0-3 or \(a:4\|a:5\)"),
    ("a:0-a:3", 4, "a range must name its model once, in front, as in a:0-13"),
    ("a:0-3*2", 5, r"a:0-3\*k is ambiguous: write \[a:0-3\]\*k to run the range k times, or"),
    ("0 " + "a" * 41 + ":0", 2, "a source name must have at most 40 characters"),
    ("_a:0", 0, "no meaning in a plan"),
    ("é:0", 0, "a model name must use the letters a-z, digits, - and _, as in a:0-3"),
    ("0a:3", 1, "separated by a space"),
    ("0–3", 1, "plain hyphen"),
    ("15×4", 2, "asterisk"),
    ("{0|1}", 0, "blocks"),
    ("٣", 0, "digits 0-9"),
    ("0-٣", 2, "a range must end with a layer, as in 0-13"),
    ("0\u00a01", 1, "no meaning in a plan"),
]


@pytest.mark.parametrize(("text", "position", "reason"), REFUSED, ids=lambda value: repr(value)[:30])
def test_a_wrong_text_is_refused_with_its_position(text: str, position: int, reason: str) -> None:
    with pytest.raises(PlanError, match=reason) as caught:
        parse(text)
    assert caught.value.text == text
    assert caught.value.position == position


@pytest.mark.parametrize("text", [None, 3, b"0-3", ["0-3"]])
def test_a_text_is_a_str(text: object) -> None:
    with pytest.raises(PlanError, match=r"the text of a plan must be a str, for example 0-13 \(14\|15\) 18-31"):
        parse(text)  # type: ignore[arg-type]


def test_the_largest_plans_are_read_and_written() -> None:
    assert parse("[0] (1|2) " * 60).nesting == 1

    longest = parse("0*2 " * 5_000)
    assert longest.evaluations == 10_000
    assert parse(write(longest)) == longest
    deepest = parse("[" * 50 + "0" + "]" * 50)
    assert deepest.nesting == 50
    assert parse(write(deepest)) == deepest
    assert [step.layer for step in deepest.steps()] == [0]


WHOLE = Plan.identity(8)


@pytest.mark.parametrize(
    ("edited", "text"),
    [
        (edits.skip(Plan.parse("0 (1|2 3|4)*2 [1 (1)]*2 1*3"), 1), "0 (2 3|4)*2"),
        (edits.repeat(WHOLE, 2, 5, 3), "0 1 [2-4]*3 5-7"),
        (edits.repeat(Plan.parse("0 1*2 (2|3)*2"), 1, 2, 3), "0 1*6 (2|3)*2"),
        (edits.repeat(Plan.parse("0 1*2 (2|3)*2"), 2, 3, 3), "0 1*2 (2|3)*6"),
        (edits.parallel(WHOLE, 2, 4, Reduction("sum")), "0 1 (2|3):sum 4-7"),
        (edits.parallel(WHOLE, 2, 3), "0-7"),
        (edits.parallel(WHOLE, 2, 3, Reduction("gain", 2)), "0 1 (2):gain=2 3-7"),
        (edits.loop(WHOLE, 2, 4, 3), "0 1 (2|3)*3 4-7"),
        (
            edits.without_branch(Plan.parse("3*2 (3.mlp|2|3.attn) [3.mlp] 3.attn"), 3, "mlp"),
            "3.attn*2 (2|3.attn) 3.attn",
        ),
    ],
)
def test_edits(edited: Plan, text: str) -> None:
    assert str(edited) == text
    assert Plan.identity(8) == WHOLE


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda: edits.skip(WHOLE, 8), "the plan does not run layer 8"),
        (lambda: edits.skip(WHOLE, [1, 2]), "layers must be integers passed one by one, such as 14, 15, 16"),  # type: ignore[arg-type]
        (lambda: edits.skip(WHOLE, *range(8)), "skips every layer"),
        (lambda: edits.swap(WHOLE, 1, 1.0), "must be integers"),  # type: ignore[arg-type]
        (lambda: edits.replace(WHOLE, 9, 1), "does not run layer 9"),
        (lambda: edits.replace(WHOLE, 1, -1), "layer must be an integer from 0 to 9999"),
        (lambda: edits.without_branch(WHOLE, 3, "atn"), r"unknown sublayer 'atn' \(str\)"),  # type: ignore[arg-type]
        (lambda: edits.without_branch(Plan.parse("0 3.mlp"), 3, "attn"), r"the plan does not run 3\.attn"),
        (
            lambda: edits.without_branch(Plan.parse("3.mlp"), 3, "mlp"),
            r"cannot skip 3\.mlp, because the plan runs nothing else",
        ),
        (lambda: edits.reverse(WHOLE, 3, 3), "0 <= start < stop <= 8"),
        (lambda: edits.reverse(WHOLE, 3, 9), "0 <= start < stop <= 8"),
        (lambda: edits.move(WHOLE, 0, 8), "0 <= start < stop <= 8"),
        (lambda: edits.shuffle(WHOLE, 0, 8, None), "seed must be an integer"),  # type: ignore[arg-type]
        (lambda: edits.repeat(WHOLE, 0, 8, 0), "a repeat count must be an integer of at least 1"),
        (lambda: edits.repeat(WHOLE, 0, 8, 2_000), "a plan must run at most 10,000 layers in total"),
        (lambda: edits.parallel(WHOLE, 0, 2, "sum"), r"merge must be a Reduction, such as Reduction\('sum'\)"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_edit_is_refused_with_the_reason(edit: Callable[[], Plan], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        edit()


def test_a_seed_draws_the_same_order_on_every_machine() -> None:
    assert str(edits.shuffle(Plan.identity(12), 1, 11, seed=7)) == "0 9 4 2 5 8 1 10 7 3 6 11"
