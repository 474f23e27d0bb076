"""What a replica says when something does not fit."""

import pytest

from replicas.errors import explain_room

ABORTED = """An error occurred while calling o68.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Total size of serialized results of 1 \
tasks (15.6 MiB) is bigger than spark.driver.maxResultSize (1024.0 KiB)
"""


@pytest.mark.parametrize("text", [ABORTED, "Caused by: java.lang.OutOfMemoryError: Java heap space"])
def test_results_that_do_not_fit_into_the_driver_are_explained(text: str) -> None:
    said = str(explain_room(text, 7, max_rows=100_000))
    assert said.startswith("batch 7: its results do not fit into the driver (Caused by: ")
    assert "--max-rows below 100000 or a smaller --max-cuts" in said
    assert "spark.driver.maxResultSize=1g" in said


def test_other_failures_are_left_as_they_are() -> None:
    assert explain_room("Python worker failed to connect back.", 7, max_rows=1) is None
