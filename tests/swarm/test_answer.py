"""Token spans of an answer that a second swarm resumed."""

from hypothesis import given
from hypothesis import strategies as st

from layerwise.swarm.answer import COMPLETE, UNKNOWN, Expected, TokenSpan, continued

WHOLE = TokenSpan(0, 5, "0-11")
LACKING = TokenSpan(2, 5, "0-3 6-11", (4, 5), Expected(0.3, 0.1, 0.5, "fitted"))


@given(st.integers(1, 40), st.data())
def test_what_the_whole_model_wrote_in_two_parts_is_one_span(count: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, count - 1))
    known = data.draw(st.integers(min(at, 1), at))  # the spans are told where they change, not with every token
    before = (TokenSpan(0, known, "0-11"),) if at else ()
    assert continued(before, at, (TokenSpan(0, count - at, "0-11"),)) == (TokenSpan(0, count, "0-11"),)


def test_the_last_span_reaches_to_where_the_second_swarm_began() -> None:
    assert continued((TokenSpan(0, 2, "0-11"), LACKING), 9, ()) == (
        TokenSpan(0, 2, "0-11"),
        TokenSpan(2, 9, "0-3 6-11", (4, 5), LACKING.expected),
    )


def test_what_lacked_before_follows_all_later_tokens() -> None:
    *_, last = continued((TokenSpan(0, 2, "0-11"), LACKING), 5, (TokenSpan(0, 3, "0-11"),))
    assert last == TokenSpan(5, 8, "0-11", (), COMPLETE, earlier=(4, 5))
    assert not last.is_whole


def test_a_doubted_node_is_named_in_all_later_tokens() -> None:
    doubted = TokenSpan(0, 5, "0-11", (), UNKNOWN, doubted=("node-1",))
    *_, last = continued((doubted,), 5, (TokenSpan(0, 3, "0-11", doubted=("node-0",)),))
    assert last.doubted == ("node-0", "node-1")


def test_tokens_that_are_made_again_are_the_second_swarms() -> None:
    first, second = continued((WHOLE,), 4, (TokenSpan(0, 3, "0-3 6-11", (4, 5), LACKING.expected),))
    assert (first.start, first.stop, second.start, second.stop) == (0, 4, 4, 7)
