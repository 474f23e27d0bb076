"""Where "too much" begins, by the file that the alerts compare with: a panel turns red where an alert fires."""

from pathlib import Path
from typing import Final

import yaml

_FILE: Final = Path(__file__).resolve().parents[1] / "prometheus" / "rules" / "limits.yml"


def limit(name: str) -> float:
    """Return a limit by the end of its name, such as `lag_seconds`."""
    (group,) = yaml.safe_load(_FILE.read_text())["groups"]
    (found,) = [rule["expr"] for rule in group["rules"] if rule["record"] == f"lmerge:limit_{name}"]
    return float(found.removeprefix("vector(").removesuffix(")"))
