"""What people see: one live screen on a terminal, plain lines elsewhere."""

import time
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Protocol, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from deploy.demo import query
from deploy.demo.observe import ReplicaView, View

STATUS_SECONDS: Final = 5.0
"""Between two plain lines about the state."""

_WORDS: Final = 16
"""Lines of the log of acts that are shown."""

_COLOURS: Final = {
    "joined": "green",
    "starting": "yellow",
    "joining": "yellow",
    "killed": "bold red",
    "ended": "red",
    "stopped": "bold yellow",
}
_TITLE: Final = (
    f"hot items: bids per auction in windows of {query.WIDTH_MS // 1_000} s, every {query.SLIDE_MS // 1_000} s"
)


class Screen(Protocol):
    """Shows how the demo is going; used in a `with` block."""

    def say(self, text: str) -> None:
        """Tell what happens, in a sentence."""

    def show(self, view: View) -> None:
        """Show how things stand."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_screen(console: Console, began: float) -> Screen:
    """Return the screen that fits where the output goes."""
    return LiveScreen(console, began) if console.is_terminal else PlainLines(began)


class PlainLines:
    """A line per act, and one about the state every few seconds."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._shown = 0.0

    def say(self, text: str) -> None:
        """Print what happens."""
        print(f"{clock(time.monotonic() - self._began)}  {text}", flush=True)

    def show(self, view: View) -> None:
        """Print the state if it is time."""
        if view.elapsed - self._shown >= STATUS_SECONDS:
            self._shown = view.elapsed
            print(f"{clock(view.elapsed)}    {status_line(view)}", flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open."""


class LiveScreen:
    """One screen that is drawn anew."""

    def __init__(self, console: Console, began: float) -> None:
        self._began = began
        self._words: list[tuple[float, str]] = []
        self._view: View | None = None
        self._live = Live(console=console, auto_refresh=False)

    def say(self, text: str) -> None:
        """Add what happens to the log of acts."""
        self._words.append((time.monotonic() - self._began, text))
        self._draw()

    def show(self, view: View) -> None:
        """Draw the state."""
        self._view = view
        self._draw()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def _draw(self) -> None:
        elapsed = time.monotonic() - self._began
        self._live.update(render(self._view, self._words[-_WORDS:], elapsed), refresh=True)


def render(view: View | None, words: Sequence[tuple[float, str]], elapsed: float) -> RenderableType:
    """Lay out the screen."""
    head = Table.grid(expand=True)
    head.add_column()
    head.add_column(justify="right")
    head.add_row(Text.assemble(("LMerge demo", "bold"), "  ", (_TITLE, "dim")), Text(clock(elapsed), "bold"))
    log = Table.grid(padding=(0, 2))
    log.add_column(style="dim", no_wrap=True)
    log.add_column(overflow="fold")
    for number, (at, text) in enumerate(words, start=1):
        log.add_row(clock(at), Text(text, "bold" if number == len(words) else ""))
    state = [_replicas(view), _merged(view)] if view else []
    return Group(head, *state, Panel(log, title="what happens", title_align="left", box=box.ROUNDED))


def _replicas(view: View) -> RenderableType:
    table = Table(box=box.ROUNDED, expand=True, title_justify="left")
    table.add_column("replica", width=8)
    table.add_column("plan", width=8)
    table.add_column("state", width=20)
    table.add_column("stable", justify="right", width=10)
    table.add_column("lag", justify="right", width=10)
    table.add_column("elements/s", justify="right", width=12)
    table.add_column("rows skipped", justify="right", width=12)
    for replica in view.replicas:
        state = Text(replica.state, _COLOURS.get(replica.state, "dim"))
        if replica.leads:
            state.append(", leads", "bold cyan")
        if replica.is_behind:
            state.append(", catching up", "yellow")
        table.add_row(
            Text(replica.name, "bold" if replica.leads else ""),
            replica.plan,
            state,
            instant(replica.stable),
            seconds(replica.lag_ms),
            f"{replica.per_second:,.0f}",
            f"{replica.skipped_rows:,}" if replica.skipped_rows else "-",
        )
    return table


def _merged(view: View) -> RenderableType:
    table = Table.grid(expand=True)
    for _ in range(5):
        table.add_column()
    table.add_row(
        Text.assemble("stable ", (instant(view.stable), "bold")),
        Text.assemble((f"{view.per_second:,.0f}", "bold"), " elements/s"),
        Text.assemble((f"{view.elements:,}", "bold"), " elements"),
        Text.assemble("last commit ", (seconds(view.gap_ms), "bold"), " ago"),
        Text.assemble("longest gap ", (seconds(view.longest_gap_ms), "bold")),
    )
    return Panel(table, title="merged topic", title_align="left", box=box.ROUNDED, border_style="green")


def status_line(view: View) -> str:
    """Write the state as one line."""
    gaps = f"gap {seconds(view.gap_ms)} (longest {seconds(view.longest_gap_ms)})"
    merged = f"merged: stable {instant(view.stable)}, {view.per_second:,.0f}/s, {gaps}"
    if view.stable is None:
        merged = "merged: nothing yet"
    return " | ".join([merged, *(_replica_words(replica) for replica in view.replicas)])


def _replica_words(replica: ReplicaView) -> str:
    figures = "" if replica.lag_ms is None else f", lag {seconds(replica.lag_ms)}, {replica.per_second:,.0f}/s"
    role = ", leads" if replica.leads else ", catching up" if replica.is_behind else ""
    skipped = f", skipped up to {replica.skipped_rows:,} rows" if replica.skipped_rows else ""
    return f"{replica.name} {replica.state}{role}{figures}{skipped}"


def clock(elapsed: float) -> str:
    """Write how long it has been: minutes and seconds.

    >>> clock(75.9)
    '01:15'
    """
    return f"{int(elapsed) // 60:02}:{int(elapsed) % 60:02}"


def instant(stable: int | None) -> str:
    """Write a time of day in this machine's zone."""
    return "-" if stable is None else f"{datetime.fromtimestamp(stable / 1_000).astimezone():%H:%M:%S}"


def seconds(ms: int | None) -> str:
    """Write a duration.

    >>> seconds(1234), seconds(None)
    ('1.2 s', '-')
    """
    return "-" if ms is None else f"{ms / 1_000:.1f} s"
