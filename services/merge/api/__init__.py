"""The admin API: desired state in, desired and observed state out (design section 10).

    guard.py     who calls, how often, how much       merges.py, inputs.py, health.py   the calls
    checks.py    is what is asked for possible?       views.py, examples.py             the answers
    problems.py  everything that is refused, by code  openapi.py                        the document of all this

Handlers are plain functions, which FastAPI runs in threads of its own: nothing here touches the loop. What the rest of
the service has to provide is in `seam.py`.
"""

from services.merge.api.app import make_app
from services.merge.api.seam import Control, Health, LaneRecords, Parts, Topics

__all__ = ["Control", "Health", "LaneRecords", "Parts", "Topics", "make_app"]
