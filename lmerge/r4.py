"""R4: no restrictions; the TDB is a multiset (paper 000, IV-E).

Assumes     nothing but what stables promise: a payload and vs may have several events, with equal ends too.
Keeps       one node per live (payload, vs) in `In3T`: for each stream and for the output the multiset of ends.
Insert      an unknown key below max_stable was settled before: dropped (lines 5-6). The end is counted (line 8).
            If the stream now has more events of an unfrozen key than the output, the insert goes out (lines 9-11).
Adjust      the stream's counts change, nothing goes out (lines 13-15).
Stable      of stream s at t > max_stable, if s is joined. For every node that becomes half frozen now, and every
            half-frozen one with an end below t, the output is made to agree with s (lines 18-26): the ends below t are
            the same, and so is the number of events beyond. Where the output has no end at or above t left, the node
            is done (lines 27-28). Then the stable goes out (lines 29-30).
Correct     the output has all events that s has fully frozen, and as many half-frozen ones per key (III-D, last lines).
Missing     as in R3.

`_reconcile` is the paper's AdjustOutputCount and AdjustOutput in one: it moves as few events as possible, prefers one
adjust to a removal and an insert (trap 4), and only moves ends that a stable would freeze wrongly. It compares ends at
or above max_stable only: below it a late joiner may lack events that the output has frozen (E10).

What cannot arise between consistent streams (trap 6: a half-frozen event too many or too few) is left as it is, counted
and reported; an event can be neither removed nor added once its vs is frozen.

Cost        Insert and adjust: O(log w + d) for w live nodes and d different ends of the key. Stable:
            O((f + k) (s d + log w)) for f nodes that become half frozen and k with an end below t, against
            O(c lg w + h d) for the paper's, which visits all h half-frozen nodes. Space: O(w (p + s d)).
"""

from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest

from lmerge.divergence import odd_one_out
from lmerge.elements import MINUS_INFINITY, Adjust, Element, Insert, Stable
from lmerge.facts import Divergence, Fact, Rule, StreamId, Violation
from lmerge.in3t import NONE, Ends, In3T, Node, ends_of, from_floor, has, many, total
from lmerge.indexed import IndexedMerge
from lmerge.membership import Stream
from lmerge.state import MergeState


class R4(IndexedMerge):
    """Merge streams with disorder, revisions and duplicates."""

    _new_node = Node

    def __init__(self, *, origin: int = MINUS_INFINITY) -> None:
        super().__init__(origin=origin)
        self._index: In3T = In3T()

    # -- elements

    def _insert(self, stream: Stream, element: Insert, output: list[Element]) -> Fact | None:
        ve, slot = element.ve, stream.slot
        node = self._index.nodes[element.vs, element.payload]
        self._index.increment(node, slot, ve)
        if not node.frozen and total(node.ends_in(slot)) > total(node.out):  # line 9
            output.append(element)
            self._index.put_out(node, ve)
        return None

    def _adjust(self, stream: Stream, element: Adjust, output: list[Element]) -> Fact | None:  # noqa: ARG002
        vs, slot = element.vs, stream.slot
        node = self._index.nodes.get((vs, element.payload))
        if node is not None and vs < element.ve >= node.floor <= element.vold and node.of(slot) == element.vold:
            self._index.move_only(node, slot, element.ve)
            return None
        if node is None and vs < self._max_stable:  # line 14
            self._settled += 1
            return None
        if node is None or (not has(node.ends_in(slot), element.vold) and element.vold >= node.floor):
            return Violation(Rule.NO_SUCH_EVENT, stream.stream_id, element, f"{element}: there is no such event")
        self._move(node, slot, element)
        return None

    def _move(self, node: Node, slot: int, element: Adjust) -> None:
        self._index.decrement(node, slot, element.vold)
        if element.ve > element.vs:
            self._index.increment(node, slot, element.ve)

    def _advance(self, stream: Stream, stable: Stable, output: list[Element]) -> None:
        t = stable.vc
        if t <= self._max_stable or t < self.origin:  # line 17
            return
        slot = stream.slot
        kept: list[Node] = []
        for node in self._index.freeze_below(t):
            out = node.out
            if type(out) is int and out >= t and (node.agree & slot or _is_beyond(node.of(slot), t)):  # not decided yet
                kept.append(node)
            elif (out := self._reconcile(slot, node, t, output)) is not NONE:
                self._index.freeze_at(node, out, t)
            else:
                self._index.delete([node])
        self._index.keep(kept, t)
        done: list[Node] = []
        spoken, everyone = self._spoken_beyond(), self._index.everyone
        for node in self._index.touched(slot, t):
            agree = node.agree
            if node.ends is None and (agree == everyone or (agree & slot and spoken(agree) <= node.vs)):
                out = node.out  # nobody says anything else
                if type(out) is int and out < t:
                    done.append(node)
                    continue
                out = from_floor(out, t)
            else:
                self._report_divergence(stream, node)
                out = self._reconcile(slot, node, t, output)
            if out is not NONE:
                self._index.set_output(node, out, t)
            else:
                done.append(node)
        self._index.delete(done)
        self._index.sweep(t)
        self._max_stable = t
        self._leader = stream
        output.append(stable)

    def _reconcile(self, slot: int, node: Node, t: int, output: list[Element]) -> Ends:
        """Make the output of a node agree with stream `slot` as far as a stable at t needs it.

        Returns:
            The output's ends at or above t.
        """
        settled, ends = node.out, from_floor(node.ends_in(slot), self._max_stable)
        if settled == ends:
            return from_floor(settled, t)
        if isinstance(settled, int) and isinstance(ends, int):  # one event each: the general case in short
            if settled >= t <= ends:
                return settled
            output.append(Adjust(node.payload, node.vs, settled, ends))
            return from_floor(ends, t)
        mine, out = Counter(many(ends)), Counter(many(settled))
        low, high = _split(mine, t)
        low_out, high_out = _split(out, t)
        beyond = total(high_out) - total(high)
        # Events that must leave their end, and ends that must have one more event. Beyond t only the number counts.
        leave = [*_sorted(low_out - low), *_sorted(high_out - high)[: max(0, beyond)]]
        reach = [*_sorted(low - low_out), *_sorted(high - high_out)[: max(0, -beyond)]]
        for old, new in zip_longest(leave, reach):
            if old is not None and new is not None:
                output.append(Adjust(node.payload, node.vs, old, new))
            elif node.frozen:  # trap 6: too late to add or remove
                self._ledger.kept += 1
                continue
            elif old is not None:
                output.append(Adjust(node.payload, node.vs, old, node.vs))
                self._ledger.missing += 1
            else:
                output.append(Insert(node.payload, node.vs, new))
            out.subtract([] if old is None else [old])
            out.update([] if new is None else [new])
        return from_floor(ends_of(out), t)

    # -- what is reported

    def _report_divergence(self, leader: Stream, node: Node) -> None:
        """Compare what streams claim about a key: the ends below both their stables, and the number beyond (RS 9).

        Only where both reach the node's floor: what is below it is not kept.
        """
        if node.is_undisputed(self._index.everyone):
            return
        mine = node.ends_in(leader.slot)
        claims: dict[StreamId, str] = {}
        agreeing = 0
        for other in self._members.streams.values():
            if other is leader or not other.joined or other.own_stable <= node.vs:
                continue  # it claims nothing: it may still say anything
            bound = min(leader.own_stable, other.own_stable)
            start = max(leader.joins_at, other.joins_at, node.floor)
            if bound < start or node.vs >= bound:
                continue
            if node.ends_in(other.slot) == mine:
                agreeing += 1
                continue
            one, two = (_claim(many(node.ends_in(stream.slot)), start, bound) for stream in (leader, other))
            if one != two:
                claims[leader.stream_id], claims[other.stream_id] = one, two
        if claims:
            self._ledger.divergences += 1
            odd = odd_one_out(leader.stream_id, claims, agreeing)
            self._ledger.note(Divergence(node.payload, node.vs, claims, odd))

    # -- recovery

    def _output_ends(self, node: Node) -> tuple[int, ...]:
        return tuple(_sorted(Counter(many(node.out))))

    def load(self, state: MergeState) -> None:
        """Go on from a state; every stream of it has to be re-fed. Ends below max_stable are left out."""
        super().load(state)
        for kept in state.nodes:
            live = Counter(end for end in kept.ends if end >= self._max_stable)
            if live:
                self._index.add(Node(kept.vs, kept.payload, self._batch, ends_of(live)))
        for node in self._index.freeze_below(self._max_stable):
            self._index.freeze_at(node, node.out, self._max_stable)

    def _refeed_one(self, slot: int, element: Insert | Adjust) -> None:
        node = self._index.nodes.get((element.vs, element.payload))
        if isinstance(element, Adjust):
            if node is not None and (has(node.ends_in(slot), element.vold) or element.vold < node.floor):
                self._move(node, slot, element)
            return
        if node is None:
            if element.vs < self._max_stable:
                return
            node = self._index.add(Node(element.vs, element.payload, self._batch, NONE))
        self._index.increment(node, slot, element.ve)


def _is_beyond(ends: Ends | None, t: int) -> bool:
    """Tell whether it is one event, with an end at or above t."""
    return isinstance(ends, int) and ends >= t


def _split(ends: Counter[int], t: int) -> tuple[Counter[int], Counter[int]]:
    low = Counter({end: count for end, count in ends.items() if end < t})
    return low, ends - low


def _sorted(ends: Counter[int]) -> list[int]:
    return sorted(ends.elements())


def _claim(ends: Mapping[int, int], joins_at: int, bound: int) -> str:
    final = sorted(Counter({end: count for end, count in ends.items() if joins_at <= end < bound}).elements())
    alive = sum(count for end, count in ends.items() if end >= bound)
    return f"ends at {final}, {alive} alive at {bound}"
