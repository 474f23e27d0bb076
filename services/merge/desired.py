"""Changes of the desired state, as decisions: what is wanted now and a request in, what is wanted next out.

Requests are idempotent: asking for what is there already changes nothing. What cannot be changed in place (the number
of partitions, the topic of an input) is a conflict that says the way out.
"""

from collections.abc import Callable

from lmerge.errors import LMergeError, UsageError
from lmerge.policies import OutputPolicy
from services.merge.definitions import MAX_FORMER_TOPICS, Attachment, Desired, InputDefinition, MergeDefinition


class NotFound(LMergeError):
    """There is no such merge or input."""


class Conflict(LMergeError):
    """The request contradicts what is there."""


def put_merge(now: Desired | None, name: str, definition: MergeDefinition) -> Desired:
    """Define a merge.

    Raises:
        Conflict: it is defined otherwise.
        UsageError: the policy is none.
    """
    if definition.policy:
        OutputPolicy.parse(definition.policy)
    if now is None:
        return Desired(definition=definition)
    if now.definition != definition:
        raise Conflict(f"merge {name} is defined otherwise; delete it first, or choose another name")
    return now


def put_input(
    now: Desired | None, merge: str, name: str, definition: InputDefinition, new_attachment: Callable[[], str]
) -> Desired:
    """Attach an input.

    Raises:
        NotFound: there is no such merge.
        Conflict: the input is attached otherwise, or its topic is that of another input.
    """
    now = _existing(now, merge)
    there = now.inputs.get(name)
    if there is not None:
        if there.definition != definition:
            raise Conflict(f"input {name} of merge {merge} is attached otherwise; detach it first")
        return now
    for other, attached in now.inputs.items():
        if attached.definition.topic == definition.topic:
            raise Conflict(f"topic {definition.topic} is that of input {other}; give each input a topic of its own")
    attachment = Attachment(attachment=new_attachment(), definition=definition)
    return now.model_copy(update={"inputs": {**now.inputs, name: attachment}})


def delete_input(now: Desired | None, merge: str, name: str) -> Desired:
    """Detach an input; its topic is remembered.

    Raises:
        NotFound: there is no such merge or input.
    """
    now = _existing(now, merge)
    if name not in now.inputs:
        raise NotFound(f"merge {merge} has no input {name}")
    topic = now.inputs[name].definition.topic
    former = (*(other for other in now.former_topics if other != topic), topic)[-MAX_FORMER_TOPICS:]
    inputs = {other: each for other, each in now.inputs.items() if other != name}
    return now.model_copy(update={"inputs": inputs, "former_topics": former})


def fix_origin(now: Desired | None, merge: str, origin: int | None) -> Desired:
    """Fix where the merge begins, once and for all (RS 5.6).

    Raises:
        NotFound: there is no such merge.
        UsageError: it is fixed already.
    """
    now = _existing(now, merge)
    if now.origin_fixed:
        raise UsageError(f"the origin of merge {merge} is fixed already")
    return now.model_copy(update={"origin": origin, "origin_fixed": True})


def _existing(now: Desired | None, merge: str) -> Desired:
    if now is None:
        raise NotFound(f"there is no merge {merge}")
    return now
