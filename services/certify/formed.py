"""A merge with `normal_form` is judged by the normal forms of its inputs: their own TDBs need not be equal.

The operator is the lane's own (`lmerge.normal_form`), so the verdict rests on it; that has an oracle of its own.
"""

from collections.abc import Callable

from lmerge.elements import Element, Hello
from lmerge.errors import IllegalElement
from lmerge.normal_form import NormalForm
from services.certify.batch import Batch, Batches


def formed(batches: Batches, new_form: Callable[[], NormalForm]) -> Batches:
    """Give a stream in its normal form: every element at the position of the one that published it.

    What cannot be brought into it is a problem at its position, and nothing more is read up to the next hello, as a
    lane does.
    """
    form: NormalForm | None = new_form()
    for batch in batches:
        elements: list[Element] = []
        positions: list[int] = []
        for element, position in zip(batch.elements, batch.positions, strict=False):
            if isinstance(element, Hello):
                form = new_form()
            if form is None:
                continue
            try:
                published = form.process(element)
            except IllegalElement as error:
                form = None
                yield Batch(elements, [*positions, position], str(error))
                elements, positions = [], []
                continue
            elements += published
            positions += [position] * len(published)
        if batch.problem is not None and form is not None:
            form = None
            yield Batch(elements, [*positions, batch.positions[len(batch.elements)]], batch.problem)
        else:
            yield Batch(elements, positions)
