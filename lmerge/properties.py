"""What a stream promises about its elements, and what each operator does to the promises (paper 000, III-C and IV-G).

The restrictions R0 to R4 rest on four promises and on nothing else (`lmerge.choose` has the table):

    insert_only   there are no adjusts
    order         how the vs of an insert relates to the vs of the insert before it
    tie_order     inserts with equal vs come in the order of this name; None: in any order
    key           in the TDB of every prefix, (payload, vs) identifies an event

`order` and `tie_order` speak of inserts; adjusts may come in between, at any vs. Promises hold for one incarnation: a
`Hello` begins anew. A promise that is not made is not a promise of the contrary, so weaker is always sound.

**Why the order among ties has a name.** R1 counts the elements with equal vs on each input and takes the n-th of one
for the n-th of another. That each input has *some* fixed order is not enough: a plan that sorts by rank and a plan that
sorts by payload are both deterministic and would be merged wrongly. Two streams have the same order among ties only
where the names are the same, and an operator that rewrites events (map, window) forgets the name, since sorting by
payload before a map is not sorting by payload after it. `keeps_tie_order` overrides this for names that stand for
positions, such as `LOG_ORDER` or a rank, which no rewriting touches.

**Transfer functions.** ``after_x(p)`` is what the output of operator x promises when its input promises p; a plan folds
them over its operators. "=" keeps a promise (that all inputs make), "-" loses it, "+" makes it:

    operator                            insert_only   order                  tie_order               key
    filter                              =             =                      =                       =
    map                                 =             =                      - (= if told)           = if injective
    window  RANGE                       =             =                      - (= if told)           =
            TUMBLING                    =             at most non-decreasing by vs, then =, if told  -
            SLIDING                     =             -                      by vs, then =, if told  -
    aggregate          settled          +             strictly increasing    (no ties)               +
                       otherwise        -             -                      -                       +
    grouped aggregate  settled          +             non-decreasing if the  -                       +
                                                      bounds are common
                       otherwise        -             -                      -                       +
    top-k              settled          +             non-decreasing         the ranking             if rank in payload
                       otherwise        -             -                      -                       if rank in payload
    union  merged by vs                 =             at most non-decreasing -                       = if disjoint
           as they come                 =             -                      -                       = if disjoint
    join   merged, all insert-only      =             at most non-decreasing -                       - (+ if told)
           otherwise                    =             -                      -                       - (+ if told)
    cleanse                             +             at least non-decr.     by ve, then payload     =
    normal form                         -             non-decreasing         -                       +

*settled* means that a result is put out once and for good; see `Results`. Strictly increasing vs implies a key and
leaves no ties, whatever the columns say.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import msgspec

from lmerge.elements import Hello
from lmerge.errors import IllegalElement, UsageError

LOG_ORDER: Final = "log order"
"""Ties in the order of one log that all replicas read alike."""

BY_RANK: Final = "rank"
"""Ties in the rank order of a top-k, from the first to the k-th."""

BY_END_AND_PAYLOAD: Final = "ve, then payload"
"""Ties as `lmerge.cleanse` orders them."""


class Order(enum.Enum):
    """How the vs of successive inserts relate; from the weakest promise to the strongest."""

    UNORDERED = "unordered"
    NON_DECREASING = "non-decreasing"
    STRICTLY_INCREASING = "strictly increasing"


_STRENGTH: Final = {order: strength for strength, order in enumerate(Order)}


class StreamProperties(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a stream promises; without arguments, nothing.

    Values are normalised: strictly increasing vs make (payload, vs) a key, since every vs is inserted once, and leave
    no ties to order. So equal promises are equal values.

    >>> StreamProperties(order=Order.STRICTLY_INCREASING).key
    True
    """

    insert_only: bool = False
    order: Order = Order.UNORDERED
    tie_order: str | None = None
    key: bool = False

    def __post_init__(self) -> None:
        if self.tie_order == "":
            raise UsageError("tie_order: an order among ties needs a name; leave it out to promise none")
        if self.order is Order.STRICTLY_INCREASING:
            msgspec.structs.force_setattr(self, "key", True)
            msgspec.structs.force_setattr(self, "tie_order", None)

    @classmethod
    def r0(cls) -> Self:
        """Return restriction R0: only inserts and stables, with strictly increasing vs."""
        return cls(insert_only=True, order=Order.STRICTLY_INCREASING)

    @classmethod
    def r1(cls, tie_order: str) -> Self:
        """Return restriction R1: only inserts and stables, non-decreasing vs, ties in the order of this name."""
        return cls(insert_only=True, order=Order.NON_DECREASING, tie_order=tie_order)

    @classmethod
    def r2(cls) -> Self:
        """Return restriction R2: as R1 with ties in any order, but (payload, vs) is a key."""
        return cls(insert_only=True, order=Order.NON_DECREASING, key=True)

    @classmethod
    def r3(cls) -> Self:
        """Return restriction R3: all elements in any order; (payload, vs) is a key."""
        return cls(key=True)

    @classmethod
    def r4(cls) -> Self:
        """Return restriction R4: nothing is promised."""
        return cls()

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote; a key that is missing means that the promise is not made.

        >>> StreamProperties.from_dict({"insert_only": True, "order": "non-decreasing"}).key
        False

        Raises:
            UsageError: an unknown key, or a value of the wrong type. Ignoring it could mean to miss a promise, or a
                condition on one, that a later version defines.
        """
        try:
            return msgspec.convert(plain, cls)
        except msgspec.ValidationError as error:
            raise UsageError(f"stream properties {dict(plain)}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return the promises that are made, as plain values for JSON.

        >>> StreamProperties.r2().to_dict()
        {'insert_only': True, 'order': 'non-decreasing', 'key': True}
        """
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @property
    def ordered(self) -> bool:
        """Whether vs never goes back."""
        return self.order is not Order.UNORDERED

    @property
    def ties_ordered(self) -> bool:
        """Whether the order among inserts with equal vs is promised, be it for lack of such inserts."""
        return self.tie_order is not None or self.order is Order.STRICTLY_INCREASING


def meet(first: StreamProperties, *others: StreamProperties) -> StreamProperties:
    """Return what all the streams promise.

    A stream without ties agrees with every order among them; other streams agree if they name the same one.
    """
    all_of = (first, *others)
    tie_orders = {p.tie_order for p in all_of if p.order is not Order.STRICTLY_INCREASING}
    return StreamProperties(
        insert_only=all(p.insert_only for p in all_of),
        order=_weakest(all_of),
        tie_order=tie_orders.pop() if len(tie_orders) == 1 else None,
        key=all(p.key for p in all_of),
    )


def _weakest(all_of: tuple[StreamProperties, ...]) -> Order:
    return min((p.order for p in all_of), key=_STRENGTH.__getitem__)


def source(*, order: Order = Order.UNORDERED, one_log: bool = False, key: bool = False) -> StreamProperties:
    """Return what a source promises: rows that come once and are never revised.

    `one_log` says that all replicas read the rows from one log (one Kafka partition), hence in the same order. Of
    several logs only each is ordered, and replicas interleave them as they like: `order` is lost. `key` is the source's
    own claim that no row repeats at an instant (a sensor that reports once per period, III-C), over all its logs.
    """
    if not one_log:
        return StreamProperties(insert_only=True, key=key)
    return StreamProperties(insert_only=True, order=order, tie_order=LOG_ORDER, key=key)


def after_filter(properties: StreamProperties) -> StreamProperties:
    """Return what the output of a filter on payloads promises: all that its input does.

    The output is a subsequence of the input and holds an event's adjusts iff it holds its insert. Subsequences keep
    every order, and a subset keeps every key.
    """
    return properties


def after_map(
    properties: StreamProperties, *, injective: bool = False, keeps_tie_order: bool = False
) -> StreamProperties:
    """Return what the output of a map of payloads promises.

    Elements correspond one to one with vs unchanged, so `insert_only` and `order` stay. Two events at one vs become
    equal only if f makes their payloads equal: an injective f keeps the key, and so does any f where no two events
    share a vs. The positions of ties stay, but their name may speak of the payloads as they were.
    """
    return StreamProperties(
        insert_only=properties.insert_only,
        order=properties.order,
        tie_order=properties.tie_order if keeps_tie_order else None,
        key=properties.key and injective,
    )


class Window(enum.Enum):
    """The lifetimes that a window gives to an event that starts at vs (width w, slide a, offset o)."""

    RANGE = "range"
    """``[vs, vs + w)``: it slides with every instant (seed-002, 2.1)."""
    TUMBLING = "tumbling"
    """``[s, s + w)`` with the largest ``s <= vs``, ``s = o mod w``."""
    SLIDING = "sliding"
    """``[s, s + w)`` for every ``s = o mod a`` with ``s <= vs < s + w``, ``a < w``: several events for one."""


def after_window(properties: StreamProperties, window: Window, *, keeps_tie_order: bool = False) -> StreamProperties:
    """Return what the output of a window promises: the input's events with the window's lifetimes.

    A window reads vs only, so an adjust of the input matters only if it removes; without adjusts there are none.

    RANGE leaves vs and payload alone: what speaks of them stays. TUMBLING rounds vs down, which keeps `<=` but not `<`,
    and brings events with equal payloads to one vs: no key. SLIDING gives one event several starts, and the next event
    the same starts again: 0, 5, 0, 5; no order. Under both, events with equal vs come in the order of the input: a
    fixed one if the input as a whole has one, by vs and then by its ties.
    """
    tie_order = properties.tie_order if keeps_tie_order else None
    if window is Window.RANGE:
        return StreamProperties(
            insert_only=properties.insert_only, order=properties.order, tie_order=tie_order, key=properties.key
        )
    if properties.order is Order.STRICTLY_INCREASING:
        tie_order = "vs"
    elif properties.ordered and tie_order is not None:
        tie_order = f"vs, then {tie_order}"
    else:
        tie_order = None
    keeps_order = window is Window.TUMBLING and properties.ordered
    return StreamProperties(
        insert_only=properties.insert_only,
        order=Order.NON_DECREASING if keeps_order else Order.UNORDERED,
        tie_order=tie_order,
    )


class Results(enum.Enum):
    """When an operator with state puts a result out."""

    EARLY = "early"
    """With every row, and adjusts it with the next (plain running aggregates, aggressive plans)."""
    ON_TIME = "on time"
    """When vs of the input has passed the window's end; adjusts it if a row or an adjust comes late (III-C, IV-G)."""
    FINAL = "final"
    """When nothing can change it any more: the input's stable or order has passed it (conservative plans)."""

    def settled(self, properties: StreamProperties) -> bool:
        """Tell whether results are put out once and for good, given what the input promises.

        On time is final where nothing comes late and nothing is revised: insert-only input in order of vs.
        """
        return self is Results.FINAL or (self is Results.ON_TIME and properties.insert_only and properties.ordered)


def after_aggregate(properties: StreamProperties, results: Results) -> StreamProperties:
    """Return what the output of an aggregate without groups promises, of windows or of snapshots.

    There is at most one result for a start: (payload, vs) is a key at any point, revised or not (III-C). Settled
    results come out when their ends are passed, each once; snapshots are disjoint and windows of one width end in the
    order in which they start, so vs increases strictly (IV-G 3, seed-002 4.5): R0. Otherwise a revision may come at any
    vs.

    For windows give the properties of the rows; the aggregate assigns the windows itself.
    """
    if results.settled(properties):
        return StreamProperties.r0()
    return StreamProperties.r3()


def after_grouped_aggregate(properties: StreamProperties, results: Results, *, common_bounds: bool) -> StreamProperties:
    """Return what the output of an aggregate per group promises; a payload carries its group.

    A group has at most one result for a start, hence the key (III-C). Order does not compose over groups (design trap
    7): the result [2, 50) of one group is settled long after the result [10, 12) of another. Only where all groups
    share the bounds of their windows (`common_bounds`: tumbling or sliding on one grid, not per-group snapshots,
    sessions or counts) are all results of a window settled at once, and vs does not decrease. In which order the groups
    come is nobody's promise. So: R2 over ordered input (IV-G 5) and for final results, R3 otherwise (IV-G 6).
    """
    if not results.settled(properties):
        return StreamProperties.r3()
    order = Order.NON_DECREASING if common_bounds else Order.UNORDERED
    return StreamProperties(insert_only=True, order=order, key=True)


def after_top_k(
    properties: StreamProperties, results: Results, *, ranking: str = BY_RANK, rank_in_payload: bool = False
) -> StreamProperties:
    """Return what the output of a top-k over windows promises: up to k results with the bounds of their window.

    As for `after_aggregate`, settled results come window by window, so vs does not decrease; inside a window they come
    by rank, which fixes the ties (IV-B, IV-G 4): R1. The ranking must be total: rows that compare equal are told apart
    by something that all plans see alike. `ranking` names it.

    Two rows with equal payloads may both be among the k, so there is a key only where the payload holds the rank.
    """
    if not results.settled(properties):
        return StreamProperties(key=rank_in_payload)
    return StreamProperties(insert_only=True, order=Order.NON_DECREASING, tie_order=ranking, key=rank_in_payload)


def after_union(
    first: StreamProperties, *others: StreamProperties, merged: bool = False, disjoint: bool = False
) -> StreamProperties:
    """Return what the output of a union of streams (multiplicities add up) promises.

    `merged` says that the operator takes the inputs in order of vs, waiting for the slowest (seed-002, 4.3); passed on
    as they come they are in no order. Equal vs on two inputs end strictness, and in which order they are taken depends
    on arrival. `disjoint` says that no payload occurs in two inputs; otherwise two events with one key may meet.
    """
    common = meet(first, *others)
    keeps_order = merged and common.ordered
    return StreamProperties(
        insert_only=common.insert_only,
        order=Order.NON_DECREASING if keeps_order else Order.UNORDERED,
        key=common.key and disjoint,
    )


def after_join(
    left: StreamProperties, right: StreamProperties, *, merged: bool = False, one_at_a_time: bool = False
) -> StreamProperties:
    """Return what the output of a join promises: pairs of payloads, valid where both events are.

    Insert-only inputs never revise a pair. A pair starts with the later of its events. If the operator takes the inputs
    in order of vs (`merged`, as for `after_union`) and nothing is revised, that is the event which it takes last, so vs
    does not decrease; an adjust could lengthen an event and make a pair at a vs long passed. In which order the
    partners of an event come depends on how the state is probed.

    Keys of the inputs do not make one: a[0, 10) and a[2, 10) with b[5, 6) give (a, b)[5, 6) twice. They do where no
    payload is valid twice at an instant, in any prefix of either input (`one_at_a_time`): then a pair of payloads
    has at most one pair of events at the instant at which it starts.
    """
    common = meet(left, right)
    keeps_order = merged and common.ordered and common.insert_only
    return StreamProperties(
        insert_only=common.insert_only,
        order=Order.NON_DECREASING if keeps_order else Order.UNORDERED,
        key=one_at_a_time,
    )


def after_cleanse(properties: StreamProperties, *, tie_order: str = BY_END_AND_PAYLOAD) -> StreamProperties:
    """Return what the output of `lmerge.cleanse` promises (VI-D, IV-G 2): R1, and R0 if every vs comes once.

    It inserts fully frozen events, hence no adjusts, in the order of (vs, ve, payload). They are events of the input's
    TDB: where that has a key it stays one, and where every vs was inserted once vs increases strictly.
    """
    strict = properties.order is Order.STRICTLY_INCREASING
    return StreamProperties(
        insert_only=True,
        order=Order.STRICTLY_INCREASING if strict else Order.NON_DECREASING,
        tie_order=tie_order,
        key=properties.key,
    )


def after_normal_form(_properties: StreamProperties) -> StreamProperties:
    """Return what the output of `lmerge.normal_form` promises, whatever the input does (seed-002, 1.5): R3.

    A payload has one multiplicity at an instant, so at most one run starts there: ((payload, n), vs) is a key. At each
    stable it inserts, in order of vs, the runs that start between the stable before and this one, so vs does not
    decrease; the ends of runs are adjusted.
    """
    return StreamProperties(order=Order.NON_DECREASING, key=True)


def declare(hello: Hello, transfer: Callable[[StreamProperties], StreamProperties]) -> Hello:
    """Return the hello of an operator's output: it declares the operator's properties, not those of the input.

    Raises:
        IllegalElement: what the hello declares cannot be read.
    """
    try:
        declared = StreamProperties.from_dict(hello.properties)
    except UsageError as error:
        raise IllegalElement(f"{hello}: {error}") from error
    return msgspec.structs.replace(hello, properties=transfer(declared).to_dict())
