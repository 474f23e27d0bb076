"""Hypothesis generators for single values; streams are made from a TDB outward, see `tests.support.logical`."""

from hypothesis import strategies as st

from lmerge import INFINITY, MINUS_INFINITY, Adjust, Element, Hello, Insert, Skip, Stable
from lmerge.canonical import payload

instants = st.integers(MINUS_INFINITY + 1, INFINITY - 1) | st.integers(-5, 5)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), values, max_size=4)
    ),
    max_leaves=8,
)
payloads = json_values.map(payload)


@st.composite
def _inserts(draw: st.DrawFn) -> Insert:
    vs = draw(instants)
    return Insert(draw(payloads), vs, draw(st.integers(vs + 1, INFINITY)))


@st.composite
def _adjusts(draw: st.DrawFn) -> Adjust:
    vs = draw(instants)
    return Adjust(draw(payloads), vs, draw(st.integers(vs + 1, INFINITY)), draw(st.integers(vs, INFINITY)))


elements: st.SearchStrategy[Element] = (
    _inserts()
    | _adjusts()
    | st.builds(Stable, instants | st.just(INFINITY))
    | st.builds(
        Hello,
        replica=st.text(st.characters(exclude_categories=["Cs"])),
        incarnation=st.integers(0, 2**40),
        joins_at=instants | st.just(MINUS_INFINITY),
        feed=st.text(st.characters(exclude_categories=["Cs"])),
        plan=st.text(st.characters(exclude_categories=["Cs"])),
        properties=st.dictionaries(st.text("ab"), st.booleans() | st.integers(0, 9)),
    )
    | st.builds(Skip, instants)
)
