import pytest

from lmerge import INFINITY, Adjust, Element, Hello, Insert, MalformedRecord, Skip, Stable, UsageError
from lmerge.codec import decode, decode_batch, encode, encode_batch

WIRE: list[tuple[bytes, Element]] = [
    (b'{"kind":"insert","payload":{"a":1},"vs":6,"ve":12}', Insert(b'{"a":1}', 6, 12)),
    (b'{"kind":"insert","payload":"A","vs":-6,"ve":null}', Insert(b'"A"', -6, INFINITY)),
    (b'{"kind":"adjust","payload":{},"vs":6,"vold":12,"ve":6}', Adjust(b"{}", 6, 12, 6)),
    (b'{"kind":"adjust","payload":{},"vs":6,"vold":null,"ve":null}', Adjust(b"{}", 6, INFINITY, INFINITY)),
    (b'{"kind":"stable","vc":11}', Stable(11)),
    (b'{"kind":"stable","vc":null}', Stable(INFINITY)),
    (
        b'{"kind":"hello","v":1,"replica":"r1","incarnation":3,"joins_at":17,"feed":"f","properties":{"x":[1]},"plan":"p"}',
        Hello(replica="r1", incarnation=3, joins_at=17, feed="f", properties={"x": [1]}, plan="p"),
    ),
    (
        b'{"kind":"hello","v":1,"replica":"r1","incarnation":0,"joins_at":null,"feed":"","properties":{},"plan":""}',
        Hello(replica="r1", incarnation=0),
    ),
    (b'{"kind":"skip","before":1700000000000}', Skip(1_700_000_000_000)),
    (b'{"kind":"skip","before":1700000000000,"cuts":14,"rows":3500}', Skip(1_700_000_000_000, 14, 3_500)),
]


@pytest.mark.parametrize(("value", "element"), WIRE)
def test_the_wire_form_of_each_kind_is_as_documented(value: bytes, element: Element) -> None:
    assert encode(element) == value
    assert decode(value) == element


def test_a_batch_is_decoded_and_encoded_in_order() -> None:
    values, elements = [value for value, _ in WIRE], [element for _, element in WIRE]
    assert decode_batch(values) == (elements, None)
    assert encode_batch(elements) == values
    assert decode_batch([]) == ([], None)
    assert encode_batch([]) == []


@pytest.mark.parametrize(
    ("value", "element"),
    [
        (b'{"vs":6, "ve":12, "payload":{"b":1.0,"a":2}, "kind":"insert"}', Insert(b'{"a":2,"b":1}', 6, 12)),
        (b'{"kind":"insert",\n"payload":{"a":\n1},"vs":6,"ve":12}\n', Insert(b'{"a":1}', 6, 12)),
        (rb'{"kind":"insert","payload":"\u0041","vs":6,"ve":12}', Insert(b'"A"', 6, 12)),
        (rb'{"\u006bind":"stable","vc":11}', Stable(11)),
        (b'{"kind":"hello","v":1,"replica":"r","incarnation":0,"joins_at":null}', Hello(replica="r", incarnation=0)),
        (
            b'{"kind":"hello","v":1,"replica":"r","incarnation":0,"joins_at":null,"later":true}',
            Hello(replica="r", incarnation=0),
        ),
    ],
)
def test_any_layout_of_a_valid_record_is_accepted(value: bytes, element: Element) -> None:
    assert decode(value) == element
    assert decode_batch([WIRE[0][0], value, WIRE[4][0]]) == ([WIRE[0][1], element, WIRE[4][1]], None)


I = b'{"kind":"insert","payload":{"a":1},"vs":6,"ve":12}'  # noqa: E741  # the base that most bad records are made from
A = b'{"kind":"adjust","payload":{"a":1},"vs":6,"vold":9,"ve":12}'
S = b'{"kind":"stable","vc":11}'
H = b'{"kind":"hello","v":1,"replica":"r1","incarnation":3,"joins_at":17,"feed":"f","properties":{},"plan":"p"}'

BAD: dict[str, tuple[bytes | None, str]] = {
    "tombstone": (None, "no value"),
    "empty": (b"", "truncated"),
    "blank": (b"  ", "truncated"),
    "line feed": (b"\n", "truncated"),
    "binary": (b"\x00\x01\x02", "malformed"),
    "Avro magic": (b"\x00\x00\x00\x00\x07abc", "malformed"),
    "plain text": (b"insert A", "malformed"),
    "a number": (b"42", "Expected `object`, got `int`"),
    "a string": (b'"insert"', "Expected `object`, got `str`"),
    "an array": (b"[" + I + b"]", "Expected `object`, got `array`"),
    "null": (b"null", "Expected `object`, got `null`"),
    "cut off": (I[:-1], "truncated"),
    "cut off in a string": (I[:10], "truncated"),
    "two elements": (S + S, "trailing characters"),
    "two lines": (S + b"\n" + S, "trailing characters"),
    "trailing comma": (S + b",", "trailing characters"),
    "single quotes": (S.replace(b'"', b"'"), "malformed"),
    "byte order mark": (b"\xef\xbb\xbf" + S, "malformed"),
    "UTF-16": (S.decode().encode("utf-16"), "malformed"),
    "comment": (S[:-1] + b"/* */}", "malformed"),
    "no kind": (b'{"vc":11}', "kind"),
    "unknown kind": (b'{"kind":"delete","vc":11}', "Invalid value 'delete' - at `$.kind`"),
    "kind of another type": (b'{"kind":1,"vc":11}', "at `$.kind`"),
    "kind in capitals": (b'{"kind":"STABLE","vc":11}', "Invalid value 'STABLE'"),
    "heartbeat": (b'{"kind":"heartbeat","v":1,"feed":"f","n":1}', "Invalid value 'heartbeat'"),
    "no payload": (b'{"kind":"insert","vs":6,"ve":12}', "missing required field `payload`"),
    "no vs": (b'{"kind":"insert","payload":1,"ve":12}', "missing required field `vs`"),
    "no ve": (b'{"kind":"insert","payload":1,"vs":6}', "missing required field `ve`"),
    "no vold": (b'{"kind":"adjust","payload":1,"vs":6,"ve":7}', "missing required field `vold`"),
    "no vc": (b'{"kind":"stable"}', "missing required field `vc`"),
    "no before": (b'{"kind":"skip"}', "missing required field `before`"),
    "vs null": (I.replace(b"6", b"null"), "Expected `int`, got `null` - at `$.vs`"),
    "vs a string": (I.replace(b"6", b'"6"'), "Expected `int`, got `str` - at `$.vs`"),
    "vs a fraction": (I.replace(b"6", b"6.5"), "Expected `int`, got `float` - at `$.vs`"),
    "vs a boolean": (I.replace(b"6", b"true"), "Expected `int`, got `bool` - at `$.vs`"),
    "vs too large": (I.replace(b"6", b"9223372036854775807"), "at `$.vs`"),
    "vs too small": (I.replace(b"6", b"-9223372036854775808"), "at `$.vs`"),
    "vs of 40 digits": (I.replace(b"6", b"6" * 40), "at `$.vs`"),
    "ve too large": (I.replace(b"12", b"9223372036854775807"), "at `$.ve`"),
    "ve infinite by name": (I.replace(b"12", b"Infinity"), "malformed"),
    "ve before vs": (I.replace(b"12", b"5"), "vs < ve"),
    "ve equal to vs": (I.replace(b"12", b"6"), "an event has a lifetime"),
    "vold before vs": (A.replace(b"9", b"5"), "vs < vold"),
    "adjust to an end before vs": (A.replace(b"12", b"5"), "vs <= ve"),
    "vc a string": (S.replace(b"11", b'"11"'), "Expected `int | null`, got `str` - at `$.vc`"),
    "vc an integral float": (S.replace(b"11", b"1.1e1"), "got `float`"),
    "leading zero": (S.replace(b"11", b"011"), "malformed"),
    "unknown field": (I[:-1] + b',"x":1}', "unknown field `x`"),
    "vold in an insert": (I[:-1] + b',"vold":9}', "unknown field `vold`"),
    "duplicate field": (S[:-1] + b',"vc":11}', "duplicate key 'vc'"),
    "duplicate kind": (S[:-1] + b',"kind":"stable"}', "duplicate"),
    "duplicate payload": (I[:-1] + b',"payload":{"a":1}}', "duplicate key 'payload'"),
    "duplicate field, escaped": (S[:-1] + rb',"\u0076c":12}', "duplicate key 'vc'"),
    "duplicate key in the payload": (I.replace(b'{"a":1}', b'{"a":1,"a":2}'), "duplicate key 'a'"),
    "NaN in the payload": (I.replace(b'{"a":1}', b'{"a":NaN}'), "malformed"),
    "infinity in the payload": (I.replace(b'{"a":1}', b'{"a":-1e999}'), "out of range|no JSON number"),
    "lone surrogate in the payload": (I.replace(b'{"a":1}', rb'{"a":"\ud800"}'), "malformed"),
    "payload not UTF-8": (I.replace(b'{"a":1}', b'{"a":"\xff"}'), "utf-8"),
    "payload too deep": (I.replace(b'{"a":1}', b"[" * 100_000 + b"]" * 100_000), "nested too deeply"),
    "hello of another version": (H.replace(b'"v":1', b'"v":2'), "at `$.v`"),
    "hello without version": (H.replace(b'"v":1,', b""), "missing required field `v`"),
    "hello without replica": (H.replace(b'"replica":"r1",', b""), "missing required field `replica`"),
    "hello with a negative incarnation": (H.replace(b":3", b":-3"), "at `$.incarnation`"),
    "hello without joins_at": (H.replace(b'"joins_at":17,', b""), "missing required field `joins_at`"),
    "hello with a field twice": (H[:-1] + b',"plan":"q"}', "duplicate key 'plan'"),
    "hello with properties of another type": (H.replace(b"{}", b"[]"), "at `$.properties`"),
    "less than nothing not read": (
        b'{"kind":"skip","before":5,"cuts":-1,"rows":0}',
        "Expected `int` >= 0 - at `$.cuts`",
    ),
    "skip to infinity": (b'{"kind":"skip","before":null}', "Expected `int`, got `null` - at `$.before`"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_record_yields_an_error_that_says_what_and_where(kind: str) -> None:
    value, why = BAD[kind]
    with pytest.raises(MalformedRecord, match=why.replace("$", r"\$").replace("`int | null`", r"`int \| null`")):
        decode(value)


@pytest.mark.parametrize("kind", BAD)
def test_the_elements_before_a_bad_record_are_not_lost(kind: str) -> None:
    elements, error = decode_batch([I, S, BAD[kind][0], I])
    assert elements == [decode(I), decode(S)]
    assert error is not None
    assert error.index == 2


def test_two_records_that_are_one_element_only_when_joined_are_refused() -> None:
    elements, error = decode_batch([b'{"kind":"stable",', b'"vc":11}', S + b"\n" + S])
    assert elements == []
    assert error is not None
    assert error.index == 0


def test_a_payload_that_is_not_bytes_cannot_be_encoded() -> None:
    with pytest.raises(UsageError, match=r"lmerge\.canonical\.payload"):
        encode(Insert("A", 6, 12))
