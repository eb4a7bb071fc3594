import torch

from layerwise.data.vision.image_examples import augmented


def spot(side: int) -> torch.Tensor:
    pixels = torch.zeros(3, side, side, dtype=torch.uint8)
    pixels[:, side // 2, side // 2 + 1] = 200
    return pixels


def shifts(name: str, side: int) -> set[tuple[int, int]]:
    torch.manual_seed(0)
    found = set()
    for _ in range(400):
        row, column = augmented(spot(side), name)[0].nonzero()[0].tolist()
        found.add((row - side // 2, column - side // 2 - 1))
    return found


def test_none_is_the_image_itself() -> None:
    assert shifts("none", 8) == {(0, 0)}


def test_crop_shifts_by_at_most_an_eighth_of_the_side() -> None:
    assert shifts("crop", 8) == {(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)}
    assert {max(abs(down), abs(right)) for down, right in shifts("crop", 16)} == {0, 1, 2}


def test_flip_also_mirrors() -> None:
    # Mirrored, column 5 of 8 becomes column 2: 3 to the left, give or take the shift.
    assert {right for _, right in shifts("crop+flip", 8)} == {-4, -3, -2, -1, 0, 1}


def test_what_comes_in_from_outside_is_zero() -> None:
    torch.manual_seed(0)
    bright = torch.full((1, 8, 8), 9, dtype=torch.uint8)
    sums = {int(augmented(bright, "crop").sum()) for _ in range(100)}
    assert sums == {9 * 64, 9 * 56, 9 * 49}


def test_draws_come_from_the_global_generator() -> None:
    state = torch.get_rng_state()
    first = [augmented(spot(8), "crop+flip") for _ in range(10)]
    torch.set_rng_state(state)
    again = [augmented(spot(8), "crop+flip") for _ in range(10)]
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
