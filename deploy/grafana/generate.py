"""All dashboards as the text of their files."""

import json
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.feeds import feeds
from deploy.grafana.inputs import inputs
from deploy.grafana.internals import internals
from deploy.grafana.overview import overview

DASHBOARDS: Final = Path(__file__).resolve().parent / "dashboards"
"""Where Grafana is told to look for them (`provisioning/dashboards`)."""


def generate() -> dict[str, str]:
    """Return the text of each file, by its name."""
    made = {"overview": overview(), "inputs": inputs(), "internals": internals(), "feeds": feeds()}
    return {
        f"{name}.json": json.dumps(builder.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"
        for name, builder in made.items()
    }
