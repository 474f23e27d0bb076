"""`make demo`: two replicas of one query on a real broker, one of them ends early, and nobody downstream notices.

The streams are those of Table I of the paper. Replica r1 ends in the middle of a transaction, which is aborted, so
that what it had written last is never seen; r2 says the same in another way and goes on. What was committed is merged,
written to the merged topic in one transaction, read back, and compared with the table that both stand for.
"""

import sys
from collections.abc import Sequence

from deploy.local import LocalStack
from lmerge import (
    INFINITY,
    TDB,
    Adjust,
    Element,
    Event,
    Insert,
    LMergeError,
    Stable,
    check_compatible,
    create,
    reconstitute,
)
from lmerge.canonical import payload
from lmerge.codec import decode_batch, encode_batch
from lmerge.kafka import KafkaSettings, TailReader, TopicAdmin, TopicSpec, TransactionalWriter

A, B = payload({"process": "A"}), payload({"process": "B"})
R1: list[Element] = [Insert(B, 8, INFINITY), Insert(A, 6, 12), Adjust(B, 8, INFINITY, 10), Stable(11)]
R1_LOST: list[Element] = [Stable(INFINITY)]
R2: list[Element] = [Insert(A, 6, 7), Insert(B, 8, 15), Adjust(A, 6, 7, 12), Adjust(B, 8, 15, 10), Stable(INFINITY)]
REFERENCE = TDB([Event(A, 6, 12), Event(B, 8, 10)])


def _write(writer: TransactionalWriter, topic: str, elements: Sequence[Element]) -> None:
    writer.write(topic, 0, [(None, value) for value in encode_batch(elements)])


def _read(settings: KafkaSettings, topic: str) -> list[Element]:
    with TailReader(settings) as reader:
        reader.require_decided(topic, 0)
        values = [record.value for batch in reader.read_range(topic, 0, start=0) for record in batch]
    elements, error = decode_batch(values)
    if error is not None:
        raise error
    return elements


def _show(title: str, elements: Sequence[Element]) -> None:
    print(f"\n{title}")
    for value in encode_batch(elements):
        print(f"  {value.decode()}")


def run(settings: KafkaSettings) -> bool:
    """Play the demo against a broker and return whether the merged topic is right."""
    topics = ["demo.replica.r1", "demo.replica.r2", "demo.merged"]
    TopicAdmin(settings).ensure(*(TopicSpec(topic, partitions=1) for topic in topics))
    with TransactionalWriter(settings, "demo/r1") as r1:
        r1.fence()
        with r1.transaction():
            _write(r1, topics[0], R1)
        r1.begin()
        _write(r1, topics[0], R1_LOST)  # and ends here: the transaction is never committed
    with TransactionalWriter(settings, "demo/r2") as r2:
        r2.fence()
        with r2.transaction():
            _write(r2, topics[1], R2)
    inputs = {"r1": _read(settings, topics[0]), "r2": _read(settings, topics[1])}
    merge = create("R3")
    for name in inputs:
        merge.attach(name)
    output = [element for name, elements in inputs.items() for element in merge.process(name, elements)]
    with TransactionalWriter(settings, "demo/merge") as writer:
        writer.fence()
        with writer.transaction():
            _write(writer, topics[2], output)
    merged = _read(settings, topics[2])
    _show("replica r1, which ended before it could commit its last element:", inputs["r1"])
    _show("replica r2, which says the same in another way:", inputs["r2"])
    _show("merged:", merged)
    problems = check_compatible(merged, inputs)
    right = reconstitute(merged) == REFERENCE and not problems
    print(f"\nverdict: {'right' if right else 'WRONG'}: {reconstitute(merged)} {problems or ''}")
    return right


def main() -> int:
    """Run the demo on a broker of its own, which is gone afterwards."""
    try:
        print("starting a Kafka broker ...")
        with LocalStack() as stack:
            print(f"broker at {stack.bootstrap_servers}")
            return 0 if run(KafkaSettings(stack.bootstrap_servers)) else 1
    except LMergeError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
