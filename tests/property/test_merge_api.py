"""The API keeps to its document, whatever it is sent: no 5xx, no status and no shape that is not documented."""

from typing import Any, Final

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from lmerge.kafka import MissingTopic, TopicDescription
from services.merge.api.guard import Limits
from services.merge.lane_record import Sample, Stop
from tests.support.rest import ADMIN, READ, World

EXAMPLES: Final = 15
"""Of each call and each place, beside those of the document; there are 14 calls."""

CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


class _SomeTopics:
    """Every name without a dot is a topic; every other one has one partition."""

    def describe(self, *names: str) -> dict[str, TopicDescription]:
        if any("." in name for name in names):
            raise MissingTopic(f"one of {names}")
        return {name: TopicDescription(name, "id", 1 + len(name) % 2, {}) for name in names}


def _world() -> World:
    world = World(limits=Limits(per_second=1e9, burst=1e9))
    world.with_merge("m")
    world.committed("m", 100, stop={"r2": Stop("quarantined", "offset 7: no element", 7)})
    world.topics.describe = _SomeTopics().describe  # type: ignore[method-assign]
    sample = Sample("{}", 1, {"r1": "[1, 5)", "r2": "nothing"})
    record = world.records.records["m"][0]
    assert record is not None
    world.records.records["m"] = [msgspec.structs.replace(record, samples=(sample,) * 3, divergences=3)]
    return world


WORLD: Final = _world()
BEFORE: Final = WORLD.control.desired
schema = schemathesis.openapi.from_asgi("/openapi.json", WORLD.app)


@pytest.mark.parametrize("there", [True, False], ids=["there", "anywhere"])
@schema.parametrize()
@settings(max_examples=EXAMPLES, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_documented(case: schemathesis.Case[Any], *, there: bool) -> None:
    """On a merge and an input that are there, and on whatever name comes up."""
    WORLD.control.desired = BEFORE
    if there and not case.path_parameters:
        pytest.skip("it names nothing that could be there")
    if there:
        case.path_parameters = {name: {"merge": "m", "name": "r2"}[name] for name in case.path_parameters}
    token = READ if there and case.method == "GET" else ADMIN
    case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, checks=CHECKS)
