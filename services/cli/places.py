"""Places in streams, for people: a line of a file, an offset of a partition."""

from services.certify.finding import Locate


def file_line(name: str, position: int) -> str:
    """Name a line as compilers do, so that editors find it."""
    return f"{name}:{position}"


def topic_offset(partition: int) -> Locate:
    """Return a function that names offsets of this partition."""
    return lambda topic, position: f"{topic}, partition {partition}, offset {position}"


def locate_in(partition: int | None) -> Locate:
    """Return the function that names places of a lane; a lane without a partition is made of files."""
    return file_line if partition is None else topic_offset(partition)
