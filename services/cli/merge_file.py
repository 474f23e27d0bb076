"""The file that `lmerge apply -f` and `lmerge topics -f` take: merges with their inputs, a document for each."""

from collections.abc import Mapping
from typing import IO, Any, NamedTuple

import yaml
from pydantic import ValidationError

from lmerge.errors import LMergeError, UsageError
from services.merge import desired as decide
from services.merge.definitions import Desired, Id, InputDefinition, MergeDefinition
from services.merge.topics import taken_topics


class Document(NamedTuple):
    """One merge as a file has it."""

    merge: str
    definition: dict[str, Any]
    inputs: dict[str, dict[str, Any]]
    where: str
    """The file and the number of the document in it, for errors."""


class _Fields(MergeDefinition):
    """What may be in a document, flat as it is there, so that an error names a field as its author knows it."""

    merge: Id
    inputs: dict[Id, InputDefinition]


def parse(stream: IO[str], name: str) -> list[Document]:
    """Read the documents of a file.

    Raises:
        UsageError: it is no YAML, or one of them is no merge.
    """
    try:
        found = [each for each in yaml.safe_load_all(stream) if each is not None]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{name}: no YAML: {' '.join(str(error).split())}") from error
    if not found:
        raise UsageError(f"{name}: there is no merge in it")
    documents = [_document(each, f"{name}, document {number}") for number, each in enumerate(found, 1)]
    names = [document.merge for document in documents]
    if len(set(names)) < len(names):
        raise UsageError(f"{name}: a merge is there twice: put its inputs into one document")
    return documents


def wanted(document: Document, others: Mapping[str, Desired]) -> Desired:
    """Return what a document asks for, checked as the merge service does, as far as that needs neither it nor Kafka.

    Args:
        document: of the file.
        others: what the documents before it ask for.

    Raises:
        UsageError: a field makes no sense, or contradicts another one.
    """
    merge = document.merge
    try:
        fields = _Fields.model_validate({**document.definition, "merge": merge, "inputs": document.inputs})
        definition = MergeDefinition.model_validate(document.definition)
        for taken in taken_topics(merge, definition, others):
            raise taken
        desired = decide.put_merge(None, merge, definition, _no_id)
        for name, attached in fields.inputs.items():
            desired = decide.put_input(desired, merge, name, attached, _no_id)
    except ValidationError as error:
        raise UsageError(f"{document.where}: {_wrong_fields(error)}") from None
    except LMergeError as error:
        raise UsageError(f"{document.where}: {error}") from error
    return desired


def _no_id() -> str:
    """Return what stands for the id of a merge or an attachment that is not made."""
    return ""


def _document(found: Any, where: str) -> Document:
    if not isinstance(found, dict) or not isinstance(found.get("merge"), str):
        raise UsageError(f"{where}: give the name of a merge (merge: …), its definition, and its inputs")
    inputs = found.get("inputs") or {}
    if not isinstance(inputs, dict) or not all(isinstance(each, dict) for each in inputs.values()):
        raise UsageError(f"{where}: give inputs by name, each with its topic (inputs: {{r1: {{topic: …}}}})")
    definition = {str(key): value for key, value in found.items() if key not in ("merge", "inputs")}
    return Document(found["merge"], definition, {str(key): value for key, value in inputs.items()}, where)


def _wrong_fields(error: ValidationError) -> str:
    """Say what is wrong with each field; of rules for several of them, which have no place, only what is wrong."""
    found = []
    for each in error.errors():
        field = ".".join(str(part) for part in each["loc"] if part != "[key]")
        text = "there is no such field" if each["type"] == "extra_forbidden" else each["msg"]
        found.append(": ".join(filter(None, [field, text.removeprefix("Value error, ")])))
    return "; ".join(found)
