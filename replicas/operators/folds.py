"""Folds: what an aggregate keeps of the values that are valid together, and what it answers from them.

A fold takes values in and out again in any order; what it answers depends on the multiset of values alone, so that
replicas that saw them in other orders answer alike (seed-001, 3.1.4). Therefore sums are integers: a value is an
integer or a decimal, kept in units of its last digit. Floats are refused, since what is left of ``x + y - y`` depends
on y. Answers with digits after the point are strings with exactly that many.

    count()                       n                        O(1) a value
    total(digits)                 the sum                  O(1)
    average(digits, of)           sum / n, rounded half up, away from zero; of: digits of the values    O(1)
    minimum(), maximum()          the smallest, largest    O(log n), and moving n references
    top(k)                        (1, largest), (2, second), … (k, k-th)                               the same

Values of minimum, maximum and top must have a total order, and equal ones must be written alike: no 1 beside 1.0. A row
as a tuple, ``(price, -id, …)``, breaks ties as Spark breaks them between structs. All values are kept, since any may be
taken out; over rows that stay, `Function.for_rows` gives a function that keeps k.
"""

import enum
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Protocol

import msgspec

from lmerge.errors import IllegalElement, UsageError
from replicas.operators.state import pack_all, unpack


class Fold(Protocol):
    """Values that are valid together."""

    @property
    def n(self) -> int:
        """How many values there are."""

    def add(self, value: Any) -> None:
        """Take a value in."""

    def remove(self, value: Any) -> None:
        """Take a value out again; raises IllegalElement where it shows that it was not in."""

    def subtract(self, other: Any) -> None:
        """Take out all that another fold of this kind has."""

    def copy(self) -> "Fold":
        """Return a fold with the same values."""

    def answers(self) -> Sequence[Any]:
        """Return the answers; only asked while there is a value."""

    def dump(self) -> Any:
        """Return all that makes it up, as plain values."""

    def restore(self, plain: Any) -> None:
        """Become the fold that was dumped; raises ValueError or TypeError if it is none."""


class Answer(enum.Enum):
    """What the answers of a function are."""

    COUNT = "how many rows there are"
    INTEGER = "an integer"
    TEXT = "a number with digits after the point, as a string"
    VALUE = "one of the values"
    RANKED = "a rank, from 1, and one of the values"


class Function(msgspec.Struct, frozen=True):
    """An aggregate function: its name with parameters, how to make an empty fold, and what that answers."""

    name: str
    empty: Callable[[], Fold]
    answer: Answer
    digits: int | None = None
    """How many digits after the point its values may have, which must be numbers then; None: they may be anything."""
    lean: Callable[[], Fold] | None = None
    """Makes a fold for rows that are never taken back, if that can do with less than `empty`."""

    def for_rows(self) -> "Function":
        """Return the function for an input that only inserts, as a source does: it keeps what can still be an answer.

        >>> maximum().for_rows().name
        'max of rows that stay'
        """
        return (
            self
            if self.lean is None
            else Function(f"{self.name} of rows that stay", self.lean, self.answer, self.digits)
        )

    def load(self, plain: Any) -> Fold:
        """Return the fold that was dumped."""
        fold = self.empty()
        fold.restore(plain)
        return fold


def count() -> Function:
    """Count rows, whatever their values."""
    return Function("count", _Count, Answer.COUNT)


def total(digits: int = 0) -> Function:
    """Add values up; with digits the answer is a string such as ``"12.30"``, else an integer."""
    _check_digits(digits)
    return Function(f"sum {digits}", lambda: _Sum(digits), Answer.TEXT if digits else Answer.INTEGER, digits)


def average(digits: int = 2, *, of: int = 0) -> Function:
    """Divide the sum by the number, to `digits` after the point; the values have at most `of` digits after theirs."""
    _check_digits(digits)
    _check_digits(of)
    return Function(f"average {digits} of {of}", lambda: _Average(of, digits), Answer.TEXT, of)


def minimum() -> Function:
    """Take the smallest value."""
    return _sorted("min", lambda values: values[:1], slice(1, None), Answer.VALUE)


def maximum() -> Function:
    """Take the largest value."""
    return _sorted("max", lambda values: values[-1:], slice(-1), Answer.VALUE)


def top(k: int) -> Function:
    """Take the k largest values with their ranks: (1, largest), (2, …)."""
    if k <= 0:
        raise UsageError(f"top {k}: needs a positive number of ranks")
    return _sorted(f"top {k}", lambda values: list(enumerate(values[: -k - 1 : -1], 1)), slice(-k), Answer.RANKED)


def _sorted(name: str, choose: Callable[[list[Any]], Sequence[Any]], rest: slice, answer: Answer) -> Function:
    """Return a function that chooses among values in order; `rest` are those that it can never choose again."""
    return Function(name, lambda: _Sorted(choose), answer, lean=lambda: _Best(choose, rest))


def _check_digits(digits: int) -> None:
    if not 0 <= digits <= 100:
        raise UsageError(f"{digits} digits after the point: needs 0 to 100")


class _Count:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0

    def add(self, value: Any) -> None:  # noqa: ARG002  # every row counts one
        self.n += 1

    def remove(self, value: Any) -> None:
        if not self.n:
            raise _absent(value)
        self.n -= 1

    def subtract(self, other: "_Count") -> None:
        self.n -= other.n

    def copy(self) -> "_Count":
        fold = _Count()
        fold.n = self.n
        return fold

    def answers(self) -> Sequence[int]:
        return (self.n,)

    def dump(self) -> Any:
        return self.n

    def restore(self, plain: Any) -> None:
        self.n = int(plain)


class _Sum:
    __slots__ = ("digits", "n", "units")

    def __init__(self, digits: int) -> None:
        self.digits = digits
        self.n = 0
        self.units = 0  # the sum, in units of 10 ** -digits

    def add(self, value: Any) -> None:
        self.n += 1
        self.units += value if not self.digits and type(value) is int else _units(value, self.digits)

    def remove(self, value: Any) -> None:
        if not self.n:
            raise _absent(value)
        self.n -= 1
        self.units -= _units(value, self.digits)

    def subtract(self, other: "_Sum") -> None:
        self.n -= other.n
        self.units -= other.units

    def copy(self) -> "_Sum":
        fold = _Sum(self.digits)
        fold.n, fold.units = self.n, self.units
        return fold

    def answers(self) -> Sequence[Any]:
        return (self.units if not self.digits else _text(self.units, self.digits),)

    def dump(self) -> Any:
        return pack_all((self.n, self.units))

    def restore(self, plain: Any) -> None:
        self.n, self.units = map(int, plain)


class _Average(_Sum):
    __slots__ = ("places",)

    def __init__(self, digits: int, places: int) -> None:
        super().__init__(digits)
        self.places = places

    def copy(self) -> "_Average":
        fold = _Average(self.digits, self.places)
        fold.n, fold.units = self.n, self.units
        return fold

    def answers(self) -> Sequence[str]:
        # Half up, away from zero: floor((2 |a| + b) / 2b) of the fraction a / b in units of the last place.
        above, below = abs(self.units) * 10**self.places, self.n * 10**self.digits
        rounded = (2 * above + below) // (2 * below)
        return (_text(-rounded if self.units < 0 else rounded, self.places),)


class _Sorted:
    __slots__ = ("choose", "values")

    def __init__(self, choose: Callable[[list[Any]], Sequence[Any]]) -> None:
        self.choose = choose
        self.values: list[Any] = []  # in order

    @property
    def n(self) -> int:
        return len(self.values)

    def add(self, value: Any) -> None:
        insort(self.values, value)

    def remove(self, value: Any) -> None:
        place = bisect_left(self.values, value)
        if place == len(self.values) or self.values[place] != value:
            raise _absent(value)
        del self.values[place]

    def subtract(self, other: "_Sorted") -> None:
        if other.n == self.n:  # all of them: the common case, windows that end
            self.values = []
            return
        for value in other.values:
            self.remove(value)

    def copy(self) -> "_Sorted":
        fold = _Sorted(self.choose)
        fold.values = self.values.copy()
        return fold

    def answers(self) -> Sequence[Any]:
        return self.choose(self.values)

    def dump(self) -> Any:
        return pack_all(self.values)

    def restore(self, plain: Any) -> None:
        self.values = list(unpack(plain))


class _Best(_Sorted):
    """Those of the values that are never taken back which can still be an answer."""

    __slots__ = ("rest",)

    def __init__(self, choose: Callable[[list[Any]], Sequence[Any]], rest: slice) -> None:
        super().__init__(choose)
        self.rest = rest

    def add(self, value: Any) -> None:
        insort(self.values, value)
        del self.values[self.rest]

    def remove(self, value: Any) -> None:
        raise IllegalElement(f"an adjust takes back the value {value!r}, of rows that are never taken back")

    def subtract(self, other: _Sorted) -> None:
        raise IllegalElement(f"{other.n} values end, of rows that are never taken back")

    def copy(self) -> "_Best":
        fold = _Best(self.choose, self.rest)
        fold.values = self.values.copy()
        return fold


def _absent(value: Any) -> IllegalElement:
    return IllegalElement(f"an adjust takes back the value {value!r}, which is not there")


def _units(value: Any, digits: int) -> int:
    """Return an exact number in units of 10 ** -digits."""
    scale: int = 10**digits
    if type(value) is int:
        return int(value) * scale
    if isinstance(value, Decimal) and value.is_finite():
        above, below = value.as_integer_ratio()
        units, rest = divmod(above * scale, below)
        if not rest:
            return units
    raise UsageError(f"{value!r}: sums take integers and decimals with at most {digits} digits after the point")


def _text(units: int, digits: int) -> str:
    """Write units of 10 ** -digits.

    >>> _text(-5, 2), _text(1230, 2), _text(7, 0)
    ('-0.05', '12.30', '7')
    """
    if not digits:
        return str(units)
    whole, rest = divmod(abs(units), 10**digits)
    return f"{'-' if units < 0 else ''}{whole}.{rest:0{digits}d}"
