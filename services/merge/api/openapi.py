"""`python -m services.merge.api.openapi`: print the OpenAPI document; `make openapi` keeps it in docs/openapi.json."""

import json
from typing import Any, NoReturn

import click
from prometheus_client import CollectorRegistry

from services.merge.api.app import document, make_app
from services.merge.api.seam import Parts
from services.merge.tokens import Tokens, from_environment


class _Nothing:
    """Stands for every part of the service: the document needs none of them."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"{name} is not there: this only prints the document")


def text() -> str:
    """Return the document as it is committed."""
    nothing: Any = _Nothing()
    parts = Parts(nothing, nothing, nothing, nothing, CollectorRegistry())
    app = make_app(parts, Tokens(from_environment({"LMERGE_ADMIN_TOKEN": "none"})))
    return json.dumps(document(app), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    click.echo(text(), nl=False)
