"""A lane's memory of what it has decoded changes nothing but the time."""

from random import Random

import pytest

from lmerge import Insert, Stable
from lmerge.codec import decode_batch, encode_batch
from services.merge import decoding
from services.merge.decoding import Decoder

GOOD = encode_batch([Insert(b'{"n":%d}' % n, n, n + 10) for n in range(40)] + [Stable(n) for n in range(10)])
BAD: list[bytes | None] = [None, b"", b'{"kind":"insert"}', b"\xff"]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_remembered_is_what_would_be_decoded(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    monkeypatch.setattr(decoding, "GENERATION", 12)
    decoder = Decoder()
    for _ in range(60):
        values: list[bytes | None] = [*rng.sample(GOOD, rng.randint(0, 20))]
        if rng.random() < 0.3:
            values.insert(rng.randint(0, len(values)), rng.choice(BAD))
        elements, error = decoder.decode(values)
        expected, expected_error = decode_batch(values)
        assert elements == expected
        assert str(error) == str(expected_error)


def test_the_second_input_gets_the_elements_of_the_first() -> None:
    decoder = Decoder()
    first, _ = decoder.decode(GOOD[:5])
    second, _ = decoder.decode([*GOOD[3:5], *GOOD[5:8]])
    assert [id(element) for element in second[:2]] == [id(element) for element in first[3:]]


def test_what_is_remembered_is_held_to_the_bound_too() -> None:
    """It was perhaps decoded for an input that is re-fed, without one; or the bound was raised and lowered."""
    decoder = Decoder()
    values = encode_batch([Insert(b'"%b"' % (b"x" * size), 1, 2) for size in (10, 500)])
    assert decoder.decode(values) == decode_batch(values)
    for _ in range(2):
        elements, error = decoder.decode(values, most=400)
        assert len(elements) == 1
        assert error is not None
        assert (error.index, "502 bytes" in error.reason) == (1, True)


def test_large_records_are_not_remembered() -> None:
    decoder = Decoder()
    large = encode_batch([Insert(b'"%b"' % (b"x" * decoding.MAX_BYTES), 1, 2)])
    (first,), _ = decoder.decode(large)
    (second,), _ = decoder.decode(large)
    assert first == second
    assert first is not second
