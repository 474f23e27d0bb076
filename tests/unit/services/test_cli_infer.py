"""What `lmerge infer` proposes for rows."""

from services.cli.infer import propose


def lines(*values: bytes | None) -> list[str]:
    return propose(values).lines("bids")


def test_fields_that_every_row_has_get_the_type_that_reads_them_all() -> None:
    assert lines(
        b'{"auction":1,"price":250,"city":"Oslo","hot":true,"rate":1}',
        b'{"price":-7,"auction":9223372036854775807,"city":"","hot":false,"rate":0.5}',
    ) == [
        "-- @source bids: auction bigint, price bigint, city string, hot boolean, rate double",
        "-- rate: a sum of doubles depends on the order of the rows; make it exact first",
    ]


def test_fields_that_some_row_could_not_be_read_with_are_left_out_with_the_reason() -> None:
    found = propose(
        [
            b'{"a":1,"b":1,"c":null,"d":{},"e":[],"f":9223372036854775808,"g":1,"h-i":1,"event_time":1,"j":null}',
            b'{"a":1,"b":"x","c":1,"d":{},"e":[],"f":1,"h-i":1,"event_time":1,"j":null}',
        ]
    )
    assert found.fields == {"a": "bigint"}
    assert found.left_out == {
        "b": "values of several types: bigint (1), string (1)",
        "c": "bigint, but null or missing in 1 of 2 rows, which could then not be read",
        "d": "objects cannot be read; a query reads plain fields only",
        "e": "arrays cannot be read; a query reads plain fields only",
        "f": "values of several types: bigint (1), integers beyond 64 bits (1)",
        "g": "bigint, but null or missing in 1 of 2 rows, which could then not be read",
        "h-i": "the name cannot be that of a column",
        "event_time": "the name cannot be that of a column",
        "j": "only null",
    }


def test_what_is_no_row_is_counted_and_decides_nothing() -> None:
    assert lines(b'{"a":1}', None, b"", b"[1]", b"\xff", b"[" * 100_000) == [
        "-- @source bids: a bigint",
        "-- 5 of 6 records are no JSON objects: they would be left out",
    ]
    assert propose([]).fields == {}
