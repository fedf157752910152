"""Counter-based random numbers."""

from __future__ import annotations

from octavo.ops.philox import philox4x32, uniform


def test_known_answers_of_random123() -> None:
    ones = 0xFFFFFFFF
    assert philox4x32((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox4x32((ones,) * 4, (ones,) * 2) == (
        0x408F276D,
        0x41C83B0E,
        0xA20BC7C6,
        0x6D5451FD,
    )
    assert philox4x32(
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    ) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def test_draws_are_spread_over_the_unit_interval() -> None:
    draws = [uniform(7, index) for index in range(2000)]
    assert all(0 <= draw < 1 for draw in draws)
    assert abs(sum(draws) / len(draws) - 0.5) < 0.02
    assert len(set(draws)) == len(draws)


def test_seeds_of_64_bits_differ_in_the_upper_half() -> None:
    assert uniform(1, 0) != uniform(1 + (1 << 32), 0)
