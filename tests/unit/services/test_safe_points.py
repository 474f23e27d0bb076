"""From where a successor has to read."""

from services.merge.safe_points import MAX_NOTES, Note, SafePoints


def note(batch: int, **vector: int) -> Note:
    return Note(batch, vector, merged_end=10 * batch, at_ms=batch)


def points(*batches: int) -> SafePoints:
    first, *others = (note(batch, r1=batch) for batch in batches)
    result = SafePoints(first)
    for other in others:
        result.add(other)
    return result


def test_the_safe_point_is_the_note_of_the_batch_or_an_earlier_one() -> None:
    safe = points(3, 4, 7)
    assert [safe.of(batch).batch for batch in (3, 4, 5, 6, 7, 8)] == [3, 4, 4, 4, 7, 7]
    assert safe.of(1).batch == 3, "nothing older is known"
    assert safe.newest.batch == 7


def test_what_is_older_than_the_oldest_live_node_is_forgotten() -> None:
    safe = points(3, 4, 7, 9)
    safe.forget_before(5)
    assert [kept.batch for kept in safe._notes] == [4, 7, 9]
    safe.forget_before(9)
    assert [kept.batch for kept in safe._notes] == [9]
    safe = points(3, 4, 7)
    safe.forget_before(None)
    assert [kept.batch for kept in safe._notes] == [7], "without a live node, all but the newest"


def test_an_input_that_is_read_anew_is_in_no_note() -> None:
    safe = SafePoints(note(1, r1=5, r2=6))
    safe.add(note(2, r1=7))
    safe.forget_input("r1")
    assert [kept.vector for kept in safe._notes] == [{"r2": 6}, {}]


def test_notes_are_bounded_and_an_earlier_one_takes_the_place_of_one_that_was_dropped() -> None:
    safe = points(*range(MAX_NOTES + 1))
    assert len(safe._notes) <= MAX_NOTES
    assert (safe.of(0).batch, safe.newest.batch) == (0, MAX_NOTES)
    assert all(safe.of(batch).batch <= batch for batch in range(MAX_NOTES + 1))
