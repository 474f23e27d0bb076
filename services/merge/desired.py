"""Changes of the desired state, as decisions: what is wanted now and a request in, what is wanted next out.

Requests are idempotent: asking for what is there already changes nothing. What cannot be changed in place (the number
of partitions, the topic of an input) is a conflict that says the way out.
"""

from collections.abc import Callable

from lmerge.choose import Algorithm, choose, lacking
from lmerge.errors import LMergeError, UsageError
from services.merge.definitions import (
    MAX_FORMER_TOPICS,
    MAX_INPUTS,
    Attachment,
    Desired,
    FastForward,
    InputDefinition,
    MergeDefinition,
    NormalFormDefinition,
    Release,
)
from services.merge.feedback import may_skip_to

NewId = Callable[[], str]


class NotFound(LMergeError):
    """There is no such merge or input."""


class Conflict(LMergeError):
    """The request contradicts what is there."""


class TooWeak(Conflict):
    """An input promises less than the algorithm needs."""


class TooMany(Conflict):
    """A merge has as many inputs as it may have."""


class TooFar(Conflict):
    """An input was to skip beyond what is committed in every lane."""


def resolve(definition: MergeDefinition) -> tuple[Algorithm, str]:
    """Return the algorithm that a definition comes to, and why (design section 6)."""
    if definition.algorithm != "auto":
        return definition.algorithm, "chosen in the definition"
    if definition.normal_form is not None:
        return "R3", "the normal form makes (payload, vs) a key"
    if definition.policy:
        return "R3", "output policies are R3's"
    if not definition.properties:
        return "R3", "no properties are listed"
    choice = choose(*(each.promised() for each in definition.properties))
    return choice.algorithm, choice.reason


def put_merge(now: Desired | None, name: str, definition: MergeDefinition, new_id: NewId) -> Desired:
    """Define a merge.

    Raises:
        Conflict: it is defined otherwise.
        UsageError: it asks for what its algorithm cannot do.
    """
    if now is not None:
        if now.definition != definition:
            raise Conflict(f"merge {name} is defined otherwise; delete it first, or choose another name")
        return now
    algorithm, reason = resolve(definition)
    # Not a rule of the model: a merge that was defined before there was this one goes on.
    if definition.quarantine_diverging and algorithm not in ("R3", "R4"):
        raise UsageError(
            f"merge {name} comes to {algorithm}, which does not compare its inputs, so quarantine_diverging would do "
            "nothing: leave it out, or say algorithm R3 (where (payload, vs) is a key) or R4"
        )
    return Desired(id=new_id(), definition=definition, algorithm=algorithm, reason=reason)


def put_input(now: Desired | None, merge: str, name: str, definition: InputDefinition, new_id: NewId) -> Desired:
    """Attach an input.

    Raises:
        NotFound: there is no such merge.
        Conflict: the input is attached otherwise, its topic is that of another input, or it promises too little.
        TooMany: the merge has as many inputs as it may have.
    """
    now = _existing(now, merge)
    there = now.inputs.get(name)
    if there is not None:
        if there.definition != definition:
            raise Conflict(f"input {name} of merge {merge} is attached otherwise; detach it first")
        return now
    if len(now.inputs) >= MAX_INPUTS:
        raise TooMany(
            f"merge {merge} has {len(now.inputs)} inputs, and may have {MAX_INPUTS}: detach one that is not needed any "
            "more, or merge some of them in a merge of their own and attach its merged topic"
        )
    for other, attached in now.inputs.items():
        if attached.definition.topic == definition.topic:
            raise Conflict(f"topic {definition.topic} is that of input {other}; give each input a topic of its own")
    mine = now.definition
    if definition.topic in (mine.merged(merge), mine.state(merge), mine.signals(merge)):
        raise Conflict(f"topic {definition.topic} is what merge {merge} writes: it cannot read it")
    _require_strength(now, merge, name, definition)
    return _with_input(now, name, Attachment(attachment=new_id(), definition=definition))


def _require_strength(now: Desired, merge: str, name: str, definition: InputDefinition) -> None:
    if definition.properties is None or now.definition.normal_form is not None:
        return
    promised = definition.properties.promised()
    missing = lacking(now.algorithm, promised)
    if missing:
        fits = choose(promised, names=[name]).algorithm
        raise TooWeak(
            f"merge {merge} runs {now.algorithm}, which needs {missing}; input {name} does not promise it. Define a "
            f"merge with algorithm {fits} (or auto, with these properties listed) and attach it there"
        )


def delete_input(now: Desired | None, merge: str, name: str) -> Desired:
    """Detach an input; its topic is remembered for those who certify.

    Raises:
        NotFound: there is no such merge or input.
    """
    now = _existing(now, merge)
    gone = _attached(now, merge, name).definition.topic
    left = {other: each for other, each in now.inputs.items() if other != name}
    former = (*(topic for topic in now.former_topics if topic != gone), gone)[-MAX_FORMER_TOPICS:]
    return now.model_copy(update={"inputs": left, "former_topics": former})


def set_paused(now: Desired | None, merge: str, name: str, *, paused: bool) -> Desired:
    """Hold an input, or let it go on.

    Raises:
        NotFound: there is no such merge or input.
    """
    now = _existing(now, merge)
    return _with_input(now, name, _attached(now, merge, name).model_copy(update={"paused": paused}))


def fast_forward(
    now: Desired | None, merge: str, name: str, before: int, *, committed: int | None, new_id: NewId
) -> Desired:
    """Tell an input to skip ahead.

    Args:
        now: what is wanted now.
        merge: the merge.
        name: the input.
        before: nothing that ends before it matters any more.
        committed: the smallest committed stable over the lanes; None: there is none yet.
        new_id: makes the id of the order.

    Raises:
        NotFound: there is no such merge or input.
        TooFar: the merge has not come that far, so what would be skipped may still matter (RS 8.1).
    """
    now = _existing(now, merge)
    attachment = _attached(now, merge, name)
    if committed is None or before > committed:
        reached = "nowhere yet" if committed is None else f"to {committed}"
        raise TooFar(
            f"merge {merge} has come {reached}: an input may skip no further than what is committed in every lane"
        )
    if now.definition.normal_form is not None:
        _require_skippable(now.definition.normal_form, merge, before, committed)
    order = FastForward(id=new_id(), before=before)
    return _with_input(now, name, attachment.model_copy(update={"fast_forward": order}))


def _require_skippable(form: NormalFormDefinition, merge: str, before: int, committed: int) -> None:
    bound = may_skip_to(committed, normal_form=True, cut_every_ms=form.cut_every_ms)
    if bound is None:
        raise TooFar(f"merge {merge} takes normal forms without cuts: an input of it must not skip anything")
    if before > bound:
        raise TooFar(f"merge {merge} takes normal forms, cut every {form.cut_every_ms} ms: at most up to {bound} now")


def release(now: Desired | None, merge: str, name: str, *, skip_record: bool, new_id: NewId) -> Desired:
    """Lift the quarantine of an input.

    Raises:
        NotFound: there is no such merge or input.
    """
    now = _existing(now, merge)
    order = Release(id=new_id(), skip_record=skip_record)
    return _with_input(now, name, _attached(now, merge, name).model_copy(update={"release": order}))


def delete_merge(now: Desired | None, merge: str) -> None:
    """Remove a merge.

    Raises:
        NotFound: there is no such merge.
    """
    _existing(now, merge)


def fix_origin(now: Desired | None, merge: str, origin: int | None, feed: str) -> Desired:
    """Fix where the merge begins, once and for all (RS 5.6), and of which feed it is; the first to say it wins.

    Raises:
        NotFound: there is no such merge.
    """
    now = _existing(now, merge)
    if now.origin_fixed:
        return now
    return now.model_copy(update={"origin": origin, "origin_fixed": True, "feed": feed})


def _with_input(now: Desired, name: str, attachment: Attachment) -> Desired:
    return now.model_copy(update={"inputs": {**now.inputs, name: attachment}})


def _existing(now: Desired | None, merge: str) -> Desired:
    if now is None:
        raise NotFound(f"there is no merge {merge}")
    return now


def _attached(now: Desired, merge: str, name: str) -> Attachment:
    if name not in now.inputs:
        raise NotFound(f"merge {merge} has no input {name}")
    return now.inputs[name]
