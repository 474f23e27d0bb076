"""What a lane has to know of its merge."""

from typing import Any, Self

import msgspec

from lmerge import INFINITY, MINUS_INFINITY, Element, Hello, Merge, OutputPolicy, StreamProperties, create
from lmerge.choose import Algorithm, lacking
from lmerge.errors import UsageError
from lmerge.normal_form import NormalForm, complete_from, json_pair
from services.merge import feedback
from services.merge.definitions import Desired


class LaneConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One lane of one merge, as defined."""

    merge: str
    merge_id: str = ""
    partition: int = 0
    algorithm: Algorithm = "R3"
    policy: OutputPolicy = OutputPolicy()
    origin: int = MINUS_INFINITY
    feed: str = ""
    """The feed that every replica must name in its hello; empty: none is demanded."""
    normal_form: bool = False
    cut_every_ms: int | None = None
    lag_ms: int | None = None
    """Signal an input that is further behind; None: only by order."""
    signal_interval_ms: int = 10_000
    quarantine_diverging: bool = False
    longest_lifetime_ms: int | None = None

    @classmethod
    def of(cls, merge: str, partition: int, desired: Desired) -> Self:
        """Take what a lane has to know from the definition."""
        definition = desired.definition
        form = definition.normal_form
        return cls(
            merge=merge,
            merge_id=desired.id,
            partition=partition,
            algorithm=desired.algorithm,
            policy=definition.output_policy,
            origin=desired.begins_at,
            feed=desired.feed,
            normal_form=form is not None,
            cut_every_ms=None if form is None else form.cut_every_ms,
            lag_ms=definition.feedback.lag_ms,
            signal_interval_ms=definition.feedback.interval_ms,
            quarantine_diverging=definition.quarantine_diverging,
            longest_lifetime_ms=definition.longest_lifetime_ms,
        )

    @property
    def is_indexed(self) -> bool:
        """Whether the algorithm has an index that is rebuilt by re-feeding: R3 and R4."""
        return self.algorithm in ("R3", "R4")

    def joins_at(self, instant: int) -> int:
        """Return where an input joins that is complete from an instant on.

        Behind the normal form its runs are complete a little later, from the next cut on; without cuts never.
        """
        if instant == MINUS_INFINITY or not self.normal_form:
            return instant
        return INFINITY if self.cut_every_ms is None else complete_from(instant, self.cut_every_ms)

    @property
    def begins_at(self) -> int:
        """Where the merge itself begins: where inputs join that are complete from the origin on (J4)."""
        return self.joins_at(self.origin)

    @property
    def complete_from(self) -> int | None:
        """Where the merged stream is complete from; None if that cannot be known.

        R0 to R2 put out nothing that begins before the origin, so what reaches over it is lacking (RS 5.6).
        """
        if self.origin == MINUS_INFINITY or self.is_indexed:
            return None if self.begins_at == INFINITY else self.begins_at
        return None if self.longest_lifetime_ms is None else self.origin + self.longest_lifetime_ms + 1

    def may_skip_to(self, stable: int) -> int | None:
        """Return how far an input may skip when the merged stable is there; None: it must not skip at all."""
        return feedback.may_skip_to(stable, normal_form=self.normal_form, cut_every_ms=self.cut_every_ms)

    def new_merge(self) -> Merge:
        """Make the algorithm."""
        policy: Any = None if self.policy == OutputPolicy() else self.policy
        return create(self.algorithm, policy=policy, origin=self.begins_at)

    def new_form(self) -> NormalForm | None:
        """Make the operator that every input passes first, if there is one."""
        return NormalForm(self.cut_every_ms, label=json_pair) if self.normal_form else None

    def why_refused(self, element: Element) -> str:
        """Say why a hello cannot be accepted; empty if it can."""
        assert isinstance(element, Hello)
        if self.feed and element.feed and element.feed != self.feed:
            return f"it reads feed {element.feed}, and this merge is of feed {self.feed}"
        if not element.properties or self.normal_form:
            return ""
        try:
            missing = lacking(self.algorithm, StreamProperties.from_dict(element.properties))
        except UsageError as error:
            return str(error)
        return f"its hello does not promise what {self.algorithm} needs: {missing}" if missing else ""
