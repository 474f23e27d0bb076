import struct

import pytest

from lmerge import UsageError
from lmerge.canonical import canonical, canonical_batch, number, payload

# IEEE 754 bits and their ECMAScript form, after RFC 8785, appendix B.
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize("bits", NUMBERS)
def test_a_float_is_written_as_rfc_8785_prints_it(bits: str) -> None:
    (x,) = struct.unpack(">d", bytes.fromhex(bits))
    assert number(x) == NUMBERS[bits]


@pytest.mark.parametrize("x", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_does_not_have_is_refused(x: float) -> None:
    with pytest.raises(ValueError, match="no JSON number"):
        number(x)


FORMS = [
    (b'{"b":1,"a":2}', b'{"a":2,"b":1}'),
    (b' { "a" : [ 1 , 2 ] } ', b'{"a":[1,2]}'),
    (b'{"a":{"c":1,"b":2}}', b'{"a":{"b":2,"c":1}}'),
    (b"1.0", b"1"),
    (b"-0", b"0"),
    (b"-0.0", b"0"),
    (b"1E3", b"1000"),
    (b"1.50", b"1.5"),
    (b"1e21", b"1e+21"),
    (b"123456789012345678901234567890", b"123456789012345678901234567890"),
    (b"1" + b"0" * 400, b"1" + b"0" * 400),
    (rb'"\u00e9\/\u000a\u0022"', rb'"' + "é".encode() + rb'/\n\""'),
    (rb'"\u001F"', rb'"\u001f"'),
    (rb'"\ud83d\ude00"', '"\U0001f600"'.encode()),
    (b'"e\xcc\x81"', b'"e\xcc\x81"'),  # e with a combining accent stays two characters
    (b'{"a":null}', b'{"a":null}'),
    (b"{}", b"{}"),
    (b"true", b"true"),
    # UTF-16 puts the surrogates of U+1F600 before U+FB33; code points put them after.
    ('{"\ufb33":1,"\U0001f600":2}'.encode(), '{"\U0001f600":2,"\ufb33":1}'.encode()),
    ('{"\U0001f600":2,"\ufb33":1}'.encode(), '{"\U0001f600":2,"\ufb33":1}'.encode()),
    ('{"é":1,"\U0001f600":2}'.encode(), '{"é":1,"\U0001f600":2}'.encode()),
]


@pytest.mark.parametrize(("text", "form"), FORMS)
def test_the_canonical_form(text: bytes, form: bytes) -> None:
    assert canonical(text) == form
    assert canonical(form) == form


def test_a_batch_has_the_forms_of_its_parts_whether_or_not_one_of_them_needs_the_exact_way() -> None:
    texts = [text for text, _ in FORMS]
    assert canonical_batch(texts) == [form for _, form in FORMS]
    assert canonical_batch(texts[:3]) == [form for _, form in FORMS[:3]]
    assert canonical_batch([]) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"a":1,"a":1}', "duplicate key 'a'"),
        (b'{"a":{"b":1,"b":2}}', "duplicate key 'b'"),
        (b'{ "a":1 , "a":2}', "duplicate key"),
        (rb'{"a":1,"\u0061":"\u0022\u0022"}', "duplicate key 'a'"),
        (b"NaN", "invalid character"),
        (b"[Infinity]", "invalid character"),
        (b"1e400", "out of range|no JSON number"),
        (rb'"\ud800"', "truncated"),
        (rb'"\udc00x"', "surrogate"),
        (b'"\xff"', "utf-8"),
        (b"", "Expecting value"),
        (b"{", "malformed"),
        (b"1,2", "Extra data"),
        (b"1 2", "malformed"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
    ],
)
def test_what_has_no_canonical_form_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        canonical(text)


def test_a_batch_with_a_value_that_has_no_canonical_form_is_refused() -> None:
    with pytest.raises(ValueError, match="duplicate key 'a'"):
        canonical_batch([b"{}", b'{"a":1,"a":1}'])
    with pytest.raises(ValueError, match=r"no JSON number|out of range"):
        canonical_batch([b"{}", b"1e400"])


def test_a_python_value_becomes_a_payload() -> None:
    assert (
        payload({"price": 12.50, "auction": 7, "tags": ["b", None]}) == b'{"auction":7,"price":12.5,"tags":["b",null]}'
    )


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), {"a": object()}, "\ud800"])
def test_a_python_value_without_a_json_form_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="no JSON payload"):
        payload(value)
