"""`lmerge merges` and `lmerge delete`: the merges that are defined."""

import click

from lmerge.process.api import Api
from services.cli import columns
from services.cli.options import api_options, json_option, merge_argument, say, why_option


@click.command()
@json_option
@api_options
def merges(*, api: Api, as_json: bool) -> None:
    """List the merges that are defined."""
    found = list(api.items("/v1/merges"))
    rows = [("MERGE", "ALGORITHM", "PARTITIONS", "INPUTS", "LAST CHANGE")]
    for item in found:
        desired = item["desired"]
        changed = desired["changed"]
        last = "" if changed is None else f"{changed['what']} by {changed['by']}"
        partitions = str(desired["definition"]["partitions"])
        rows.append((item["name"], desired["algorithm"], partitions, " ".join(desired["inputs"]) or "-", last))
    say(found, columns.show(*rows) if found else "no merge is defined: lmerge apply -f merge.yaml", as_json=as_json)


@click.command()
@merge_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@why_option
@json_option
@api_options
def delete(*, api: Api, merge: str, yes: bool, why: str, as_json: bool) -> None:
    """Remove MERGE with its inputs. Its topics stay."""
    if not yes:
        click.confirm(f"Remove merge {merge}? Nothing is merged any more", abort=True, err=True)
    api.delete(f"/v1/merges/{merge}", why)
    say({"merge": merge, "removed": True}, f"removed merge {merge}; its topics are still there", as_json=as_json)
