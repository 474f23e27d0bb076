"""The merged topic as a consumer reads it: committed records, rebuilt into the table that they stand for."""

import msgspec

from deploy.demo import query
from deploy.demo.answer import Result
from lmerge import TDB, reconstitute
from lmerge.codec import decode_batch
from lmerge.kafka import KafkaSettings, TailReader


class _Payload(msgspec.Struct, frozen=True):
    auction: int
    count: int


def read_merged(settings: KafkaSettings) -> tuple[list[Result], int]:
    """Return the results of all lanes, and the stable up to which they are final.

    Raises:
        InputError: the topic is not a legal stream.
    """
    with TailReader(settings) as reader:
        lanes = [_lane(reader, lane) for lane in range(query.LANES)]
    return [result for tdb in lanes for result in _results(tdb)], min(tdb.stable for tdb in lanes)


def _lane(reader: TailReader, lane: int) -> TDB:
    records = [record for batch in reader.read_range(query.MERGED_TOPIC, lane, start=0) for record in batch]
    elements, error = decode_batch([record.value for record in records])
    if error is not None:
        raise error
    return reconstitute(elements)


def _results(tdb: TDB) -> list[Result]:
    results = []
    for event in tdb:
        assert isinstance(event.payload, bytes)  # noqa: S101 - as everything that comes from the wire
        payload = msgspec.json.decode(event.payload, type=_Payload)
        results.append(Result(payload.auction, payload.count, event.vs, event.ve))
    return results
