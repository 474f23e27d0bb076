"""One shard of a plan that answers early: the operator it runs, and what a batch makes that operator say. Pure.

A shard has all rows of its groups. A batch brings it rows and, whether it has rows or not, the heartbeat: how far the
rows are complete (tau) and what no longer matters (`before`). What it says is a function of its state and of the *set*
of rows, so that a replay says the same (recovery-and-sink.md 7.6): rows are taken in the order of their places in the
topic, whatever order a shuffle has brought them in.

In a batch a shard says, in this order,

    what takes back answers that end before `before`, if that has risen     sequence -n to -1
    what the rows change                                                     sequence 0, 1, …

so that the sink can write the skip between the two (recovery-and-sink.md 8.4, F4). Stables are not among it: the sink
promises by the offset log, in all lanes at once, the same that the operator would.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, cast

import msgspec

from lmerge.elements import Adjust, Element, Insert, Stable
from lmerge.errors import UsageError
from replicas.operators import Answer, Function, Grid, Mode, Operator, UnusableState, WindowAggregate
from replicas.windows import Windows


class Row(NamedTuple):
    """A row of a source, as far as the operator needs it."""

    partition: int
    offset: int
    ts: int
    group: tuple[Any, ...]
    value: tuple[Any, ...]


class HeartbeatRow(NamedTuple):
    """What is known after a batch; None: nothing of the kind."""

    tau: int | None = None
    """No row with `ts <= tau` is to come."""
    before: int | None = None
    """No result with `ve < before` matters."""


class Said(NamedTuple):
    """An insert or, with `vold`, an adjust; the payload is the group's columns and the answer's."""

    sequence: int
    vold: int | None
    vs: int
    ve: int
    payload: tuple[Any, ...]


class Recipe(msgspec.Struct, frozen=True):
    """An aggregate of windows: what it computes, and when it answers."""

    function: Function
    mode: Mode

    @property
    def text(self) -> str:
        """Return it in words; a plan with another text is another plan."""
        return f"{self.function.name}, {self.mode.value}"

    def check(self, values: int) -> None:
        """Check how many columns are to be aggregated.

        Raises:
            UsageError: the function takes more or fewer.
        """
        if self._counts and values:
            raise UsageError(f"{self.function.name} counts rows and looks at no value: leave `of` out")
        if not self._counts and not values:
            raise UsageError(f"{self.function.name} needs a value: say `of` what")
        if not self._chooses and values > 1:
            raise UsageError(f"{self.function.name} takes one value, not {values}; make one expression of them in `of`")

    @property
    def _counts(self) -> bool:
        return self.function.answer is Answer.COUNT

    @property
    def _chooses(self) -> bool:
        return self.function.answer in (Answer.VALUE, Answer.RANKED)

    def operator(self, windows: Windows) -> Operator:
        """Return the operator, new; its payloads are rows' groups and values, and answers as `Said` has them."""
        grid = Grid(windows.width_ms, windows.slide_ms)
        value: Callable[[Any], Any] = itemgetter(1) if self._chooses or self._counts else lambda row: row[1][0]
        return WindowAggregate(
            grid, self.function.for_rows(), self.mode, key=itemgetter(0), value=value, result=self._payload
        )

    def _payload(self, group: tuple[Any, ...], answer: Any) -> tuple[Any, ...]:
        match self.function.answer:
            case Answer.VALUE:
                return (*group, *answer)
            case Answer.RANKED:
                rank, value = answer
                return (*group, rank, *value)
            case _:
                return (*group, answer)


def advance(
    operator: Operator, state: bytes | None, rows: Iterable[Row], heartbeat: HeartbeatRow
) -> tuple[list[Said], bytes]:
    """Give a batch to a new operator that goes on from a state; return what it says and its new state.

    Raises:
        UnusableState: the state is damaged, or of another program or plan.
        IllegalElement: a row that the heartbeats before it rule out: the source is wrong.
    """
    if state is not None:
        try:
            operator.load(state)
        except UnusableState as error:
            raise UnusableState(
                f"{error}; move the replica's directory away to let it begin a new incarnation"
            ) from error
    closing = [] if heartbeat.before is None else operator.fast_forward(heartbeat.before)
    elements: list[Element] = [
        Insert((row.group, row.value), row.ts, row.ts + 1) for row in sorted(rows, key=itemgetter(0, 1))
    ]
    if heartbeat.tau is not None:
        elements.append(Stable(heartbeat.tau + 1))
    said = [*_said(closing, -len(closing)), *_said(operator.process(elements), 0)]
    return said, operator.save()


def _said(elements: Sequence[Element], first: int) -> Iterable[Said]:
    for sequence, element in enumerate(elements, first):
        if isinstance(element, Insert):
            yield Said(sequence, None, element.vs, element.ve, cast("tuple[Any, ...]", element.payload))
        elif isinstance(element, Adjust):
            yield Said(sequence, element.vold, element.vs, element.ve, cast("tuple[Any, ...]", element.payload))
