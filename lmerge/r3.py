"""R3: inserts, adjusts and stables in any order, (payload, vs) a key (paper 000, IV-D).

Assumes     (payload, vs) identifies at most one event of a stream at any time; otherwise only what stables promise.
Keeps       one node per live (payload, vs) in `In2T`: the end that each stream gives it, and the end in the output.
Insert      an unknown event is put out at once, unless it lies below max_stable: then it was settled before, and is
            dropped (lines 5-9). The stream's end is noted (line 10).
Adjust      the stream's end is noted, nothing goes out (lines 12-14).
Stable      of stream s at t > max_stable, if s is joined. For every node that becomes half frozen now, and every
            half-frozen one with an end below t: if the output's end differs from that in s and one of the two is about
            to be frozen, adjust the output (lines 22-25); if the end in s is frozen, the node is done (lines 26-27). An
            event that s lacks is taken back. Then the stable goes out (lines 28-29).
Correct     after a stable t of s the output's fully frozen events are those of s, and the half-frozen ones match in
            payload and vs: conditions C1 to C3 of section III-D, with L the largest of the L_m.
Policies    lines 8 and 14 are where the paper leaves a choice (V-A): `OutputPolicy`.
Missing     an event is in the output iff the stream that moved max_stable past its vs had it (V-C).
Joining     the elements of a stream that has not joined count, its stables do not, until it is joined (RS 5.3).

Two cases cannot arise between consistent streams, and must not make the output illegal when they arise all the same
(trap 6): s lacks a node that is half frozen already, or ended it below max_stable. The output then stays as it is, is
frozen as it is in time, and the contradiction is reported.

Cost        Insert and adjust: O(log w) for w live nodes. Stable: O((f + k) (s + log w)) for f nodes that become half
            frozen and k that have an end below t; the paper's loop takes O(h) on top for the h half-frozen nodes that
            nothing happens to. Why nothing can be missed: see in2t.py. Space: O(w (p + s)) for payloads of size p.
"""

from lmerge.divergence import claim, contradict, odd_one_out
from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Element, Insert, Stable
from lmerge.facts import Divergence, Fact, Rule, Violation
from lmerge.in2t import NOT_OUTPUT, In2T, Node
from lmerge.indexed import IndexedMerge
from lmerge.membership import Stream
from lmerge.policies import Adjusts, Inserts, OutputPolicy, Quorum
from lmerge.state import MergeState


class R3(IndexedMerge):
    """Merge streams with disorder and revisions, where (payload, vs) is a key."""

    _new_node = Node

    def __init__(self, *, origin: int = MINUS_INFINITY, policy: OutputPolicy | None = None) -> None:
        super().__init__(origin=origin)
        self._index: In2T = In2T()
        self._policy = policy = policy or OutputPolicy()
        self._puts_out_first = policy.inserts is Inserts.FIRST
        self._eager = policy.adjusts is Adjusts.EAGER

    # -- elements

    def _insert(self, stream: Stream, element: Insert, output: list[Element]) -> Fact | None:
        vs, ve = element.vs, element.ve
        node = self._index.nodes.get((vs, element.payload))
        if node is None:  # the policy puts out nothing at once
            node = self._index.add(Node(vs, element.payload, self._batch, NOT_OUTPUT))
        elif node.of(stream.slot) is not None:
            return Violation(Rule.DUPLICATE, stream.stream_id, element, f"{element} comes a second time")
        self._index.set_end(node, stream.slot, ve)
        if node.out == NOT_OUTPUT or self._eager:
            self._react(stream, node, ve, output)
        return None

    def _adjust(self, stream: Stream, element: Adjust, output: list[Element]) -> Fact | None:
        vs, ve = element.vs, element.ve
        node = self._index.nodes.get((vs, element.payload))
        if node is None and vs < self._max_stable:  # line 13
            self._settled += 1
            return None
        if node is None or node.of(stream.slot) != element.vold:
            return Violation(Rule.NO_SUCH_EVENT, stream.stream_id, element, f"{element}: there is no such event")
        if ve == vs:
            self._index.drop_end(node, stream.slot)
        else:
            self._index.set_end(node, stream.slot, ve)
        if self._eager:
            self._react(stream, node, ve, output)
        return None

    def _advance(self, stream: Stream, stable: Stable, output: list[Element]) -> None:
        t = stable.vc if stable.vc == INFINITY else stable.vc - self._policy.lag
        if t <= self._max_stable:  # line 16
            self._look_back(stream)
            return
        if self._policy.inserts is Inserts.FULLY_FROZEN:
            t = self._put_out_final(stream.slot, t, output)
        if t <= self._max_stable or t < self.origin:
            return
        slot = stream.slot
        kept: list[Node] = []
        for node in self._index.freeze_below(t):
            if node.out >= t and (node.agree & slot or node.end(slot, MINUS_INFINITY) >= t):  # nothing is frozen wrong
                kept.append(node)
            else:
                self._freeze(stream, node, t, output)
        self._index.keep(kept)
        spoken, everyone = self._spoken_beyond(), self._index.everyone
        self._index.delete(
            [
                node
                for node in self._index.touched(slot, t)
                # In the common case it ends as all streams have it, or as the leading one has it and nobody says else.
                if (
                    node.out < t
                    and node.ends is None
                    and (node.agree == everyone or (node.agree & slot and spoken(node.agree) <= node.vs))
                )
                or self._settle(stream, node, t, output)
            ]
        )
        self._index.sweep(t)
        self._max_stable = t
        self._leader = stream
        output.append(stable if t == stable.vc else Stable(t))

    def _freeze(self, stream: Stream, node: Node, t: int, output: list[Element]) -> None:
        """Decide on a node that becomes half frozen: from now on it is in the output for good, or not at all."""
        end = node.of(stream.slot)
        if end is None:  # line 20: the leading stream lacks it
            if node.out != NOT_OUTPUT:
                output.append(Adjust(node.payload, node.vs, node.out, node.vs))
            self._ledger.missing += bool(node.claims())
            self._index.delete([node])
            return
        if node.out == NOT_OUTPUT:
            output.append(Insert(node.payload, node.vs, end))
            self._index.set_output(node, end)
        elif end != node.out and (end < t or node.out < t):  # lines 22-25
            output.append(Adjust(node.payload, node.vs, node.out, end))
            self._index.set_output(node, end)
        if end < t:  # line 26
            self._index.delete([node])
        else:
            self._index.keep([node])

    def _settle(self, stream: Stream, node: Node, t: int, output: list[Element]) -> bool:
        """Decide on a half-frozen node with an end below t, in the output or in the leading stream.

        Returns:
            Whether it can change no more.
        """
        self._report_divergence(stream, node)
        end = node.of(stream.slot)
        if end is None or end < self._max_stable:  # trap 6: to follow the leading stream would be illegal
            self._ledger.kept += 1
            self._index.drop_end(node, stream.slot)
            return bool(node.out < t)
        if end != node.out:  # lines 22-25
            output.append(Adjust(node.payload, node.vs, node.out, end))
        if end < t:  # line 26
            return True
        self._index.set_output(node, end)
        return False

    # -- policies other than the default

    def _react(self, stream: Stream, node: Node, ve: int, output: list[Element]) -> None:
        """Put out an event, or a change of its end, that the policy does not want to leave to the next stable."""
        if node.out == NOT_OUTPUT:
            if ve > node.vs and self._wanted(stream, node):
                output.append(Insert(node.payload, node.vs, ve))
                self._index.set_output(node, ve)
        elif ve != node.out and ve >= self._max_stable and self._heard(stream):
            output.append(Adjust(node.payload, node.vs, node.out, ve))
            self._index.set_output(node, ve if ve > node.vs else NOT_OUTPUT)

    def _wanted(self, stream: Stream, node: Node) -> bool:
        match self._policy.inserts:
            case Inserts.FIRST:
                return True
            case Inserts.LEADING:
                return self._heard(stream)
            case Quorum() as quorum:
                having = sum(node.of(member.slot) is not None for member in self._members)
                return having >= quorum.needed(len(self._members))
            case _:  # half frozen, fully frozen: the next stable decides
                return False

    def _heard(self, stream: Stream) -> bool:
        return self._policy.inserts is not Inserts.LEADING or stream is self._leader

    def _put_out_final(self, slot: int, t: int, output: list[Element]) -> int:
        """Put out, in the order of vs, what stream `slot` has finished, up to the first event that it has not.

        Returns:
            How far the output may be stable: up to the vs of that first event. No node is ever half frozen, so the
            output is append-only.
        """
        final: list[Node] = []
        bound = t
        while (first := self._index.first_unfrozen()) and first[0].vs < t:
            # After Stable(INFINITY) nothing changes any more, so that an end at infinity is final too.
            if t < INFINITY and any(node.end(slot, MINUS_INFINITY) >= t for node in first):
                bound = first[0].vs
                break
            final += self._index.freeze_below(first[0].vs + 1)
        for node in final:
            if bound < self.origin:  # nothing is decided below the origin
                self._index.put_back([node])
                continue
            end = node.of(slot)
            if end is not None:
                output.append(Insert(node.payload, node.vs, end))
            else:
                self._ledger.missing += bool(node.claims())
            self._index.delete([node])
        return bound

    def _look_back(self, stream: Stream) -> None:
        """Report what a stable that does not lead makes final in its own stream, and the output knows better.

        An end below it on a node that lives cannot come true any more: the node was alive at max_stable.
        """
        for node in self._index.touched_own(stream.slot, min(stream.own_stable, self._max_stable)):
            self._report_divergence(stream, node)
            self._index.drop_end(node, stream.slot)

    # -- what is reported

    def _report_divergence(self, leader: Stream, node: Node) -> None:
        if node.is_undisputed(self._index.everyone):
            return
        end = node.of(leader.slot)
        claims = {}
        agreeing = 0
        for other in self._members.streams.values():
            if other.own_stable <= node.vs or not other.joined or other is leader:
                continue  # it claims nothing: it may still say anything
            if node.of(other.slot) == end:
                agreeing += 1
                continue
            joins_at = max(leader.joins_at, other.joins_at)
            mine = claim(leader, node.vs, end, joins_at)
            theirs = claim(other, node.vs, node.of(other.slot), joins_at)
            if contradict(mine, theirs):
                claims[leader.stream_id], claims[other.stream_id] = str(mine), str(theirs)
        if claims:
            self._ledger.divergences += 1
            odd = odd_one_out(leader.stream_id, claims, agreeing)
            self._ledger.note(Divergence(node.payload, node.vs, claims, odd))

    # -- recovery

    def _output_ends(self, node: Node) -> tuple[int, ...]:
        return () if node.out == NOT_OUTPUT else (node.out,)

    def load(self, state: MergeState) -> None:
        """Go on from a state; every stream of it has to be re-fed."""
        super().load(state)
        if self._policy.inserts is Inserts.FULLY_FROZEN:
            return  # what was put out is final
        for kept in state.nodes:
            for ve in kept.ends:
                self._index.add(Node(kept.vs, kept.payload, self._batch, ve))
        self._index.keep(self._index.freeze_below(self._max_stable))

    def _refeed_one(self, slot: int, element: Insert | Adjust) -> None:
        node = self._index.nodes.get((element.vs, element.payload))
        if node is None:
            if isinstance(element, Adjust) or element.vs < self._max_stable:
                return
            node = self._index.add(Node(element.vs, element.payload, self._batch, NOT_OUTPUT))
        if element.ve > element.vs:
            self._index.set_end(node, slot, element.ve)
        else:
            self._index.drop_end(node, slot)
