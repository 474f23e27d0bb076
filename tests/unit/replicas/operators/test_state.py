"""A state that is damaged, foreign, of another version or another operator is refused, and the error says which."""

from collections.abc import Callable
from decimal import Decimal

import msgspec
import pytest

from lmerge import UsageError
from replicas.operators import (
    Aggregate,
    Chain,
    Filter,
    Grid,
    Join,
    Mode,
    Operator,
    UnusableState,
    WindowAggregate,
    count,
    maximum,
    total,
)
from replicas.operators.state import MAGIC, pack, seal, unpack, unseal
from tests.support.streams import ins, stb

OPERATORS: dict[str, Callable[[], Operator]] = {
    "filter": lambda: Filter(bool),
    "aggregate": lambda: Aggregate(total(), Mode.EAGER),
    "window aggregate": lambda: WindowAggregate(Grid(10, 5), count(), Mode.PERFECT),
    "join": lambda: Join(str, str, lambda one, other: (one, other)),
    "chain": lambda: Chain(Filter(bool), Aggregate(maximum(), Mode.FINAL)),
}


@pytest.fixture(params=OPERATORS)
def operator(request: pytest.FixtureRequest) -> Operator:
    made: Operator = OPERATORS[request.param]()
    made.process([ins(10, 1, 5), stb(1), ins(20, 3, 8)])
    return made


def fresh(operator: Operator) -> Operator:
    """Return a new operator with the same parameters."""
    return next(made for make in OPERATORS.values() if (made := make()).signature == operator.signature)


def test_a_state_is_the_same_again_when_it_is_loaded(operator: Operator) -> None:
    other = fresh(operator)
    other.load(operator.save())
    assert other.save() == operator.save()
    assert len(other) == len(operator)
    assert other.promised == operator.promised


def test_every_damaged_byte_is_noticed(operator: Operator) -> None:
    state = operator.save()
    for place in range(len(state)):
        damaged = state[:place] + bytes([state[place] ^ 0x15]) + state[place + 1 :]
        with pytest.raises(UnusableState):
            fresh(operator).load(damaged)


def test_a_state_that_is_cut_off_or_too_long_is_noticed(operator: Operator) -> None:
    state = operator.save()
    for part in (b"", state[:1], state[: len(state) // 2], state[:-1], state + b"\x00"):
        with pytest.raises(UnusableState):
            fresh(operator).load(part)


def test_a_foreign_state_is_named() -> None:
    state = Aggregate(total(), Mode.EAGER).save()
    with pytest.raises(UnusableState, match=r"aggregate\(sum 0, eager\) does not fit aggregate\(sum 2, eager\)"):
        Aggregate(total(2), Mode.EAGER).load(state)
    with pytest.raises(UnusableState, match=r"does not fit aggregate\(sum 0, final\): the plan has changed"):
        Aggregate(total(), Mode.FINAL).load(state)
    with pytest.raises(UnusableState, match="does not fit join"):
        OPERATORS["join"]().load(state)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ([MAGIC, 2, "filter", 0, b""], r"version \[2\], this program reads 1"),
        ([MAGIC], r"version \[\]"),
        ([MAGIC, 1, "filter", 7], "its frame is damaged"),
        ([MAGIC, 1, "filter", 7, "text"], "its frame is damaged"),
        ([MAGIC, 1, "filter", 7, b"body"], "state of filter: damaged, the checksum"),
        (["a pickle", 1], "not the state of an operator"),
        ({"a": 1}, "not the state of an operator"),
    ],
)
def test_a_frame_that_is_none_is_refused_with_the_reason(frame: object, reason: str) -> None:
    with pytest.raises(UnusableState, match=reason):
        Filter(bool).load(msgspec.msgpack.encode(frame))


class _Body(msgspec.Struct, array_like=True):
    stables: list[str]


def test_a_body_of_another_form_is_refused_with_the_place() -> None:
    with pytest.raises(UnusableState, match=r"content cannot be read: Expected"):
        Filter(bool).load(seal("filter", _Body(["x"])))


def test_a_group_whose_parts_do_not_fit_is_refused() -> None:
    aggregate = Aggregate(total(), Mode.EAGER)
    aggregate.process([ins(10, 1, 5)])
    saved = aggregate._save()
    saved.groups[0].points.append(9)
    with pytest.raises(UnusableState, match="group None cannot be read: 3 points and 2 snapshots"):
        aggregate.load(seal(aggregate.signature, saved))


def test_a_window_whose_fold_is_none_is_refused() -> None:
    windows = WindowAggregate(Grid(10, 10), count(), Mode.EAGER)
    windows.process([ins(10, 1, 5)])
    saved = windows._save()
    saved.windows[0].fold = "many"
    with pytest.raises(UnusableState, match="window 0 cannot be read"):
        windows.load(seal(windows.signature, saved))


def test_a_chain_of_another_length_is_refused() -> None:
    chain = Chain(Filter(bool), Filter(bool))
    saved = chain._save()
    saved.states.pop()
    with pytest.raises(UnusableState, match="it holds 1 states"):
        chain.load(seal(chain.signature, saved))


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(2**63), 2**63, 2**200, -(2**200), 1.5, "é", b"\x00", (), (1, ("a", (None, b"b")), 2**70)],
)
def test_values_come_back_as_they_were(value: object) -> None:
    class Body(msgspec.Struct, array_like=True):
        value: object

    back = unpack(unseal(seal("x", Body(pack(value))), "x", Body).value)
    assert back == value
    assert type(back) is type(value)


def test_a_value_that_no_state_can_hold_is_refused_when_it_is_saved() -> None:
    aggregate = Aggregate(count(), Mode.EAGER, key=lambda _: frozenset({1}))
    aggregate.process([ins("a", 1, 2)])
    with pytest.raises(UsageError, match="not frozenset; let the operator's functions return"):
        aggregate.save()


def test_a_decimal_comes_back_with_its_digits() -> None:
    class Body(msgspec.Struct, array_like=True):
        value: object

    assert str(unpack(unseal(seal("x", Body(pack(Decimal("1.10")))), "x", Body).value)) == "1.10"
