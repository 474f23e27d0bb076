"""What decoding, canonicalising and encoding an element costs, against orjson on the same bytes (`make bench-codec`).

The unit is `orjson.dumps(orjson.loads(value))`, record by record. orjson does less: it checks no type, no field and no
canonical form. Because its call has a fixed cost that our batches do not pay, a second, harder unit is printed too:
orjson on the whole batch as one array. One JSON line per measurement; ratios from one run.
"""

import json
import sys
import timeit
from collections.abc import Callable

import orjson

from lmerge.codec import decode_batch, encode_batch

BATCH = 1000
ROUNDS = 15
BARS = {"canonical": 1.5, "other": 4.0}


def _values(kind: str) -> list[bytes]:
    if kind == "canonical":
        form = b'{"kind":"insert","payload":{"auction":%d,"category":"c-%d","count":%d,"price":%d.5},"vs":%d,"ve":%d}'
    else:  # keys out of order, blanks, as a generic JSON library writes them
        form = (
            b'{"payload": {"price": %d.5, "category": "c-%d", "count": %d, "auction": %d},'
            b' "kind": "insert", "vs": %d, "ve": %d}'
        )
    start = 1_700_000_000_000
    return [form % (i, i % 10, i * 7, i, start + i, start + 10_000 + i) for i in range(BATCH)]


def _microseconds(work: Callable[[], object]) -> float:
    work()
    return min(timeit.repeat(work, number=5, repeat=ROUNDS)) / 5 / BATCH * 1e6


def main() -> int:
    """Print the measurements; fail if a ratio is above its bar."""
    failed = False
    for kind, bar in BARS.items():
        values = _values(kind)
        elements, error = decode_batch(values)
        assert error is None
        ours = {
            "decode_us": _microseconds(lambda values=values: decode_batch(values)),  # type: ignore[misc]
            "encode_us": _microseconds(lambda elements=elements: encode_batch(elements)),  # type: ignore[misc]
        }
        units = {
            "orjson_us": _microseconds(lambda values=values: [orjson.dumps(orjson.loads(v)) for v in values]),  # type: ignore[misc]
            "orjson_array_us": _microseconds(
                lambda values=values: orjson.dumps(orjson.loads(b"[" + b",".join(values) + b"]"))  # type: ignore[misc]
            ),
        }
        total = sum(ours.values())
        ratio = total / units["orjson_us"]
        failed |= ratio > bar
        line = {
            "benchmark": "codec",
            "input": kind,
            "bytes": len(values[0]),
            **{name: round(value, 3) for name, value in (ours | units).items()},
            "ratio": round(ratio, 2),
            "ratio_to_array": round(total / units["orjson_array_us"], 2),
            "bar": bar,
        }
        print(json.dumps(line))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
