"""Asking Prometheus, as Grafana would."""

import re
from typing import Any, Final, NamedTuple

import httpx

from deploy.local.errors import StackError
from lmerge.kafka.closing import Closing

_ANSWER_SECONDS: Final = 10.0
_VARIABLE: Final = re.compile(r"\$\{?(\w+)\}?")


class Series(NamedTuple):
    """One answer: its labels, and its values with their times."""

    labels: dict[str, str]
    points: list[tuple[float, float]]

    @property
    def last(self) -> float:
        """The newest value."""
        return self.points[-1][1]


def substitute(expression: str, **values: str) -> str:
    """Put values in place of Grafana's variables; those that are not given match everything."""
    known = {"__rate_interval": "1m", **values}
    return _VARIABLE.sub(lambda found: known.get(found[1], ".*"), expression)


class Asker(Closing):
    """A client of Prometheus.

    Args:
        url: where it is.
    """

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=_ANSWER_SECONDS, trust_env=False)

    def now(self, expression: str, at: float | None = None) -> list[Series]:
        """Ask for the values at one moment.

        Raises:
            StackError: it is no PromQL, or Prometheus does not answer.
        """
        moment = {} if at is None else {"time": at}
        found = self._ask("query", {"query": expression, **moment})
        if found["resultType"] == "scalar":
            return [Series({}, _points([found["result"]]))]
        return [Series(each["metric"], _points([each["value"]])) for each in found["result"]]

    def over(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        """Ask for the values over a time.

        Raises:
            StackError: it is no PromQL, or Prometheus does not answer.
        """
        found = self._ask("query_range", {"query": expression, "start": start, "end": end, "step": step})
        return [Series(each["metric"], _points(each["values"])) for each in found["result"]]

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        return {each["labels"]["alertname"] for each in self._ask("alerts", {})["alerts"] if each["state"] == "firing"}

    def _ask(self, what: str, values: dict[str, Any]) -> Any:
        try:
            answer = self._client.get(f"/api/v1/{what}", params=values)
        except httpx.TransportError as error:
            raise StackError(f"Prometheus does not answer: {error}") from error
        said = answer.json()
        if said["status"] != "success":
            raise StackError(f"Prometheus refuses {values.get('query', what)}: {said['error']}")
        return said["data"]

    def _close(self) -> None:
        self._client.close()


def _points(values: list[list[Any]]) -> list[tuple[float, float]]:
    return [(float(when), float(value)) for when, value in values]
