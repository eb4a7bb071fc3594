"""Bad input ends with code 2 and one or two sentences, loses nothing, and needs little memory and time."""

import pytest

from hostile.runner import CASES, described, failed

SHARES = 2


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_hostile_input_is_rejected_or_handled(share: int) -> None:
    found = [described(*each) for each in failed(range(share, len(CASES), SHARES))]
    assert not found, "\n\n".join(["", *found])
