"""`lmerge apply -f merge.yaml`: let merges and their inputs be as a file says."""

import sys
from collections.abc import Iterator
from typing import IO, Any

import click

from lmerge.process.api import Api
from services.cli.failure import FINE, NO
from services.cli.merge_file import Document, parse
from services.cli.options import api_options, json_option, say, why_option


@click.command()
@click.option("-f", "--file", "stream", required=True, type=click.File("r", encoding="utf-8"), help="- is a pipe.")
@click.option("--dry-run", is_flag=True, help="Only say what would change, and what stands in the way.")
@click.option("--prune", is_flag=True, help="Detach inputs that the file does not name.")
@why_option
@json_option
@api_options
def apply(*, api: Api, stream: IO[str], dry_run: bool, prune: bool, why: str, as_json: bool) -> None:
    r"""Define merges and attach their inputs as a file says; what is there already stays as it is.

    \b
      merge: hot_items
      partitions: 4
      feedback: {lag_ms: 60000}
      inputs:
        r1: {topic: hot_items.replica.r1}
        r2: {topic: hot_items.replica.r2}

    Several merges are several documents, between lines of ---. A definition cannot be changed in place. The exit code
    is 1 if --dry-run finds something that stands in the way.
    """
    documents = parse(stream, stream.name)
    if dry_run:
        sys.exit(_dry_run(api, documents, prune=prune, as_json=as_json))
    changes = []
    for document in documents:
        for change in _apply(api, document, prune=prune, why=why):
            changes.append(change)
            if not as_json:
                click.echo(change)
    if as_json or not changes:
        say({"changes": changes}, "nothing to change", as_json=as_json)


def _apply(api: Api, document: Document, *, prune: bool, why: str) -> Iterator[str]:
    path = f"/v1/merges/{document.merge}"
    made, view = api.put(path, document.definition, why)
    if made:
        yield f"defined merge {document.merge} ({view['desired']['algorithm']}: {view['desired']['reason']})"
    for name, definition in document.inputs.items():
        made, _ = api.put(f"{path}/inputs/{name}", definition, why)
        if made:
            yield f"attached {name} to {document.merge}"
    for name in view["desired"]["inputs"] if prune else ():
        if name not in document.inputs:
            api.delete(f"{path}/inputs/{name}", why)
            yield f"detached {name} from {document.merge}"


def _dry_run(api: Api, documents: list[Document], *, prune: bool, as_json: bool) -> int:
    answers = []
    for document in documents:
        body = {"name": document.merge, "definition": document.definition, "inputs": document.inputs}
        answer = api.post("/v1/merges:validate", body)
        if prune:
            answer["changes"] += [f"detach input {name}" for name in _others(api, document)]
        answers.append({"merge": document.merge, **answer})
    say(answers, "\n".join(line for answer in answers for line in _lines(answer)), as_json=as_json)
    return FINE if all(answer["valid"] for answer in answers) else NO


def _others(api: Api, document: Document) -> list[str]:
    there = {item["name"]: item for item in api.items("/v1/merges")}
    attached = there[document.merge]["desired"]["inputs"] if document.merge in there else {}
    return [name for name in attached if name not in document.inputs]


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    yield f"{answer['merge']}: {answer['algorithm']}: {answer['reason']}"
    for change in answer["changes"]:
        yield f"  would {change}"
    for topic in answer["topics"]:
        if not topic["exists"] and answer["changes"]:
            yield f"  would need topic {topic['name']} ({topic['partitions']} partitions), which is not there yet"
    for problem in answer["problems"]:
        yield f"  in the way: {problem['detail']}"
    if not answer["changes"] and not answer["problems"]:
        yield "  nothing to change"
