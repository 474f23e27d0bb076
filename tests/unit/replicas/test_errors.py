"""What a replica says when something does not fit."""

from replicas.errors import explain_room

ABORTED = """An error occurred while calling o68.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Total size of serialized results of 1 \
tasks (15.6 MiB) is bigger than spark.driver.maxResultSize (1024.0 KiB)
"""


LATER = "--max-rows below 100000 or --max-cuts, help only later batches; or move its directory away"


def test_results_that_do_not_fit_into_the_driver_are_explained() -> None:
    said = str(explain_room(ABORTED, 7, max_rows=100_000))
    assert said.startswith("batch 7: its results do not fit into the driver (Caused by: ")
    assert "give the driver more room: --conf spark.driver.memory=2g --conf spark.driver.maxResultSize=1g" in said
    assert LATER in said


def test_memory_that_ran_out_may_be_that_of_a_task() -> None:
    said = str(explain_room("Caused by: java.lang.OutOfMemoryError: Java heap space", 7, max_rows=100_000))
    assert said.startswith("batch 7: Spark ran out of memory, in a task or in the driver (Caused by: ")
    assert "give it more: --conf spark.driver.memory=2g, and on a cluster --conf spark.executor.memory=2g" in said
    assert LATER in said


def test_other_failures_are_left_as_they_are() -> None:
    assert explain_room("Python worker failed to connect back.", 7, max_rows=1) is None
