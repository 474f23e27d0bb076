"""What an engine leaves in the packet filter when it ends, and how to take it back. Pure."""

import shlex
from dataclasses import dataclass, field


@dataclass
class Table:
    """One table: its chains with their policies ("-" for those that somebody made), and its rules in order."""

    policies: dict[str, str] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)


def parse(saved: str) -> dict[str, Table]:
    """Read what `iptables-save` prints."""
    tables: dict[str, Table] = {}
    table = Table()
    for line in saved.splitlines():
        if line.startswith("*"):
            table = tables.setdefault(line[1:], Table())
        elif line.startswith(":"):
            chain, policy, *_ = line[1:].split()
            table.policies[chain] = policy
        elif line.startswith("-A "):
            table.rules.append(line.removeprefix("-A "))
    return tables


def undo(before: str, after: str) -> list[list[str]]:
    """Give the arguments of `iptables`, call by call, that take back what has come in between.

    Args:
        before: what `iptables-save` printed then; a table that nobody had used is not in it.
        after: what it prints now.
    """
    were = parse(before)
    calls: list[list[str]] = []
    for name, table in parse(after).items():
        was = were.get(name, Table())
        new = [chain for chain, policy in table.policies.items() if policy == "-" and chain not in was.policies]
        own = ["--table", name]
        calls += [
            [*own, "--delete", *shlex.split(rule)]
            for rule in table.rules
            if rule not in was.rules and rule.split()[0] not in new
        ]
        calls += [[*own, "--flush", chain] for chain in new]  # all of them first: they refer to each other
        calls += [[*own, "--delete-chain", chain] for chain in new]
        for chain, policy in table.policies.items():
            earlier = was.policies.get(chain, "ACCEPT")
            if policy not in {"-", earlier}:
                calls.append([*own, "--policy", chain, earlier])
    return calls
