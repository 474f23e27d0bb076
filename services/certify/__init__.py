"""Judging merged streams from outside: `certify` and `compare`, pure and streaming; `services.cli` reads for them.

Nothing in here uses the algorithms R0 to R4: a judge that shared their code would share their mistakes. It rests on
the theorem of `lmerge.compatible` alone.
"""

from services.certify.batch import Batch, Batches
from services.certify.certifier import Certificate, Certifier
from services.certify.comparison import BeginsAnew, Compared, Comparison
from services.certify.finding import Finding, Kind
from services.certify.formed import formed

__all__ = [
    "Batch",
    "Batches",
    "BeginsAnew",
    "Certificate",
    "Certifier",
    "Compared",
    "Comparison",
    "Finding",
    "Kind",
    "formed",
]
