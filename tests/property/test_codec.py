"""The codec and the canonical form on random input, against slow and obvious counterparts."""

import json
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmerge import Element, MalformedRecord
from lmerge.canonical import canonical, canonical_batch
from lmerge.codec import decode, decode_batch, encode_batch
from tests.support.strategies import elements, json_values


@given(st.lists(elements))
def test_every_element_comes_back_from_the_wire(stream: list[Element]) -> None:
    assert decode_batch(encode_batch(stream)) == (stream, None)


@given(st.lists(elements, min_size=1), st.randoms(use_true_random=False))
def test_layout_does_not_matter(stream: list[Element], rng: random.Random) -> None:
    """White space, the order of fields and keys, and escapes change nothing, alone or beside compact records."""
    values = encode_batch(stream)
    loose = [_loosen(value, rng) if rng.random() < 0.7 else value for value in values]
    assert decode_batch(loose) == (stream, None)


def _loosen(value: bytes, rng: random.Random) -> bytes:
    def shuffled(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return dict(rng.sample(pairs, len(pairs)))

    data = json.loads(value, object_pairs_hook=shuffled)
    return json.dumps(data, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1])).encode()


def _slow_canonical(value: Any) -> str:
    """RFC 8785 by the letter, on Decimals: shares no code and no number formatting with lmerge.canonical."""
    match value:
        case bool() | None | str():
            return json.dumps(value, ensure_ascii=False)
        case int():
            return str(value)
        case float():
            return _slow_number(value)
        case list():
            return f"[{','.join(map(_slow_canonical, value))}]"
        case dict():
            keys = sorted(value, key=lambda key: [*memoryview(key.encode("utf-16-be")).cast("B")])
            return "{" + ",".join(f"{_slow_canonical(key)}:{_slow_canonical(value[key])}" for key in keys) + "}"
        case _:
            raise TypeError(value)


def _slow_number(x: float) -> str:
    if x == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(x)).normalize().as_tuple()
    assert isinstance(exponent, int)
    point = len(digits) + exponent
    text = "".join(map(str, digits))
    if 0 < point <= 21:
        text = text.ljust(point, "0")
        text = text[:point] + ("." + text[point:] if text[point:] else "")
    elif -6 < point <= 0:
        text = "0." + "0" * -point + text
    else:
        text = text[0] + ("." + text[1:] if text[1:] else "") + f"e{point - 1:+d}"
    return "-" * sign + text


@given(st.lists(json_values, min_size=1, max_size=4), st.booleans())
def test_the_canonical_form_agrees_with_a_slow_one(values: list[Any], ensure_ascii: bool) -> None:
    texts = [json.dumps(value, ensure_ascii=ensure_ascii).encode() for value in values]
    forms = [_slow_canonical(value).encode() for value in values]
    assert canonical_batch(texts) == forms
    assert [canonical(text) for text in texts] == forms
    assert canonical_batch(forms) == forms


@given(json_values, st.text('ab"\\u0', max_size=6), st.randoms(use_true_random=False))
def test_a_duplicate_key_is_found_wherever_it_hides(value: Any, key: str, rng: random.Random) -> None:
    name = json.dumps(key)
    escaped = '"' + "".join(f"\\u{ord(c):04x}" for c in key) + '"'
    pairs = [f"{name}:{json.dumps(value)}", f"{rng.choice([name, escaped])}:1", r'"\u0022\u0022":"\u0022"']
    rng.shuffle(pairs)
    with pytest.raises(ValueError, match="duplicate key"):
        canonical(b"[1,{" + ",".join(pairs).encode() + b"}]")


def test_random_bytes_yield_an_error_or_an_element_and_no_other_exception(long: bool) -> None:
    """Half of them are noise, half are valid records with a few bytes changed, cut or inserted."""
    rng = random.Random(3)
    seeds = [
        b'{"kind":"insert","payload":{"a":1,"b":[1.5,"x"]},"vs":6,"ve":12}',
        b'{"kind":"adjust","payload":{"a":"\\u00e9"},"vs":6,"vold":9,"ve":null}',
        b'{"kind":"stable","vc":11}',
        b'{"kind":"hello","v":1,"replica":"r","incarnation":3,"joins_at":17,"feed":"f","properties":{},"plan":"p"}',
        b'{"kind":"skip","before":5}',
        b'{"kind":"skip","before":5,"cuts":2,"rows":40}',
    ]
    outcomes = {"element": 0, "error": 0}
    for _ in range(1_000_000 if long else 100_000):
        value = _mutate(rng.choice(seeds), rng) if rng.random() < 0.5 else rng.randbytes(rng.randrange(40))
        try:
            element = decode(value)
        except MalformedRecord:
            outcomes["error"] += 1
        else:
            assert decode_batch(encode_batch([element])) == ([element], None)
            outcomes["element"] += 1
    assert min(outcomes.values()) > 1000, outcomes


def _mutate(value: bytes, rng: random.Random) -> bytes:
    data = bytearray(value)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data))
        match rng.randrange(3):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                del data[at : at + rng.randrange(1, 4)]
            case _:
                data[at:at] = rng.choice([b" ", b"1", b"-", b'"', b"null", b",", b"{", b"e5", b"\\u0022"])
        data = data or bytearray(b" ")
    return bytes(data)
