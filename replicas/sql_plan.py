"""A plan that is a statement of Spark SQL: the sources are its tables, the windows its parameters."""

import logging
import re
import threading
from collections.abc import Callable
from typing import Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from lmerge.errors import UsageError
from replicas.errors import in_a_line
from replicas.query import Plan, Sources
from replicas.query_file import Statement
from replicas.windows import Windows

_POSITION: Final = re.compile(r"\bline (\d+),? pos (\d+)")

_naming: Final = threading.Lock()
"""Held while the sources have their names, which are the session's: of two plans that were built at once, the first to
end would take the tables of the other away."""

# PySpark logs each of these errors too, with a page of Java.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


def sql_plan(statement: Statement, file: str) -> Plan:
    """Return a statement as a plan; its mistakes are found when it is built, since only Spark can read it."""
    return Plan(build=_builder(statement, file), check=Windows.require_whole_panes, place=f"{file}:{statement.line}")


def _builder(statement: Statement, file: str) -> Callable[[Sources, Windows], DataFrame]:
    # Empty lines in front make the lines that Spark speaks of those of the file.
    text = "\n" * (statement.line - 1) + statement.text

    def build(sources: Sources, windows: Windows) -> DataFrame:
        spark = next(iter(sources.values())).sparkSession
        parameters = {"width": f"{windows.width_ms} milliseconds", "slide": f"{windows.slide_ms} milliseconds"}
        with _naming:
            for name, frame in sources.items():
                frame.createOrReplaceTempView(name)
            try:
                try:
                    return spark.sql(text, args=parameters)
                except ParseException:
                    return spark.sql(text)  # fails again: only without parameters Spark says where it stumbles
            except AnalysisException as error:
                raise UsageError(_explain(str(error), file, statement.line)) from error
            finally:
                for name in sources:
                    spark.catalog.dropTempView(name)

    return build


def _explain(text: str, file: str, line: int) -> str:
    """Say it in a line, with the place.

    >>> _explain("[UNRESOLVED_COLUMN] no column `x`. SQLSTATE: 42703; line 4 pos 7; …", "q.sql", 3)
    'q.sql:4: no column `x`.'
    """
    found = _POSITION.search(text)
    return f"{file}:{found[1] if found else line}: {in_a_line(text)}"
