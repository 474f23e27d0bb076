"""What LMerge is compared with (paper 000, VI-A and VI-D); none of it is meant to be used.

    PaperR3      Algorithm R3 as printed: a stable walks every half-frozen node. Shared nodes, as in in2t.
    NaiveR3      the paper's LM^{R3-}: an index per input and one for the output, so every input's payload is kept.
    CleanseR1    the paper's C+LM^{R1}: a Cleanse per input puts it in order, R1 merges the results.

They take consistent streams that are there from the start: no joining and leaving, no checks, no facts. The first two
use a `SortedDict` where the paper has a red-black tree.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from sortedcontainers import SortedDict

from lmerge.cleanse import Cleanse
from lmerge.create import create
from lmerge.elements import MINUS_INFINITY, Adjust, Element, Insert, Payload, Stable
from lmerge.facts import Fact, StreamId

Key: TypeAlias = tuple[int, Payload]


class Merger(Protocol):
    """What is measured: `lmerge.Merge` and the baselines."""

    def attach(self, stream_id: StreamId) -> None:
        """Add a stream that is complete from the start."""

    def process(self, stream_id: StreamId, elements: Sequence[Element]) -> list[Element]:
        """Take elements of one stream and return what goes out because of them."""
        ...

    def take_facts(self) -> list[Fact]:
        """Return what happened since the last call."""
        ...


class _Indexed:
    """What PaperR3 and NaiveR3 share: the loop over elements."""

    def __init__(self) -> None:
        self._max_stable = MINUS_INFINITY

    def process(self, stream_id: StreamId, elements: Sequence[Element]) -> list[Element]:
        """Take elements of one stream and return what goes out because of them."""
        output: list[Element] = []
        for element in elements:
            if isinstance(element, Insert):
                self._insert(stream_id, element, output)
            elif isinstance(element, Stable):
                if element.vc > self._max_stable:  # line 16
                    self._stable(stream_id, element.vc, output)
                    self._max_stable = element.vc
                    output.append(element)
            else:
                assert isinstance(element, Adjust)
                self._adjust(stream_id, element)
        return output

    def take_facts(self) -> list[Fact]:
        """Return nothing: the baselines check nothing."""
        return []

    def _insert(self, stream_id: StreamId, element: Insert, output: list[Element]) -> None:
        raise NotImplementedError

    def _adjust(self, stream_id: StreamId, element: Adjust) -> None:
        raise NotImplementedError

    def _stable(self, stream_id: StreamId, t: int, output: list[Element]) -> None:
        raise NotImplementedError


def _half_frozen(index: SortedDict[Key, Any], t: int) -> Iterator[Key]:
    """Return the keys with vs < t, in order: the paper's FindHalfFrozen."""
    bound: Any = (t,)  # sorts before every (t, payload)
    return index.irange(None, bound, inclusive=(True, False))


class _Node:
    __slots__ = ("ends", "out")

    def __init__(self, out: int) -> None:
        self.out = out
        self.ends: dict[StreamId, int] = {}


class PaperR3(_Indexed):
    """Algorithm R3 of IV-D, line by line."""

    def __init__(self) -> None:
        super().__init__()
        self._index: SortedDict[Key, _Node] = SortedDict()

    def attach(self, stream_id: StreamId) -> None:
        """Add a stream: nothing to do."""

    def _insert(self, stream_id: StreamId, element: Insert, output: list[Element]) -> None:
        key = (element.vs, element.payload)
        node = self._index.get(key)
        if node is None:
            if element.vs < self._max_stable:  # line 6
                return
            node = self._index[key] = _Node(element.ve)  # lines 7, 9
            output.append(element)  # line 8
        node.ends[stream_id] = element.ve  # line 10

    def _adjust(self, stream_id: StreamId, element: Adjust) -> None:
        node = self._index.get((element.vs, element.payload))
        if node is not None:  # lines 13-14
            node.ends[stream_id] = element.ve

    def _stable(self, stream_id: StreamId, t: int, output: list[Element]) -> None:
        index = self._index
        done = []
        for key in _half_frozen(index, t):  # line 17
            node = index[key]
            end = node.ends.get(stream_id, key[0])  # lines 19-20
            out = node.out
            if end != out and (end < t or out < t):  # lines 22-23
                output.append(Adjust(key[1], key[0], out, end))
                node.out = end  # line 25: only with the adjust, or the two would not agree
            if end < t:  # line 26
                done.append(key)
        for key in done:
            del index[key]


class NaiveR3(_Indexed):
    """LM^{R3-} of VI-A: the events of each input in an index of its own, and one more index of what was put out."""

    def __init__(self) -> None:
        super().__init__()
        self._inputs: dict[StreamId, SortedDict[Key, int]] = {}
        self._out: SortedDict[Key, int] = SortedDict()

    def attach(self, stream_id: StreamId) -> None:
        """Add a stream, with an index of its own."""
        self._inputs[stream_id] = SortedDict()

    def _insert(self, stream_id: StreamId, element: Insert, output: list[Element]) -> None:
        key = (element.vs, element.payload)
        if key not in self._out:
            if element.vs < self._max_stable:
                return
            self._out[key] = element.ve
            output.append(element)
        self._inputs[stream_id][key] = element.ve

    def _adjust(self, stream_id: StreamId, element: Adjust) -> None:
        key = (element.vs, element.payload)
        index = self._inputs[stream_id]
        if key in index:
            index[key] = element.ve

    def _stable(self, stream_id: StreamId, t: int, output: list[Element]) -> None:
        mine = self._inputs[stream_id]
        done = []
        for key in _half_frozen(self._out, t):
            end = mine.get(key, key[0])
            out = self._out[key]
            if end != out and (end < t or out < t):
                output.append(Adjust(key[1], key[0], out, end))
                self._out[key] = end
            if end < t:
                done.append(key)
        for key in done:
            del self._out[key]
            for index in self._inputs.values():
                index.pop(key, None)


class CleanseR1:
    """C+LM^{R1} of VI-D: put every input in order by itself, then merge with R1."""

    def __init__(self) -> None:
        self._cleanses: dict[StreamId, Cleanse] = {}
        self._merge = create("R1")

    def attach(self, stream_id: StreamId) -> None:
        """Add a stream, with a Cleanse of its own."""
        self._cleanses[stream_id] = Cleanse()
        self._merge.attach(stream_id)

    def process(self, stream_id: StreamId, elements: Sequence[Element]) -> list[Element]:
        """Take elements of one stream and return what goes out because of them."""
        cleanse = self._cleanses[stream_id].process
        released = [out for element in elements for out in cleanse(element)]
        return self._merge.process(stream_id, released)

    def take_facts(self) -> list[Fact]:
        """Return what R1 has to tell."""
        return self._merge.take_facts()


def make(name: str) -> Merger:
    """Make a merge by the name that it has in the measurements: R0 to R4, R3-, R3 paper, C+R1."""
    match name:
        case "R3-":
            return NaiveR3()
        case "R3 paper":
            return PaperR3()
        case "C+R1":
            return CleanseR1()
        case _:
            return create(name)
