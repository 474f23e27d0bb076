"""A wire between a process and its broker that can be cut.

listeners = second_door("WIRED", "PLAINTEXT", port=port, door=door, told=told)
with LocalStack(port=port, settings=listeners), Wire(told, door) as wire:
    ...                 clients of 127.0.0.1:told are carried to the door
    wire.reset()        all connections end; new ones are taken
    wire.cut()          nothing comes through, and neither side is told
    wire.mend()
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from deploy.local.ports import HOST, choose

T = TypeVar("T")


def second_door(name: str, protocol: str, *, port: int, door: int, told: int) -> dict[str, str]:
    """Give the settings of a lone broker with a second listener.

    Args:
        name: of the listener.
        protocol: that it speaks.
        port: of the first one.
        door: of the second one.
        told: where its clients are told to come.
    """
    (quorum,) = choose(1, avoid={port, door, told})

    def listeners(second: int) -> str:
        return f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{quorum},{name}://{HOST}:{second}"

    return {
        "listeners": listeners(door),
        "advertised.listeners": listeners(told),
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{name}:{protocol}",
        "controller.quorum.voters": f"1@{HOST}:{quorum}",
    }


class Wire:
    """Carries connections from one port to another, in a thread of its own.

    Args:
        entry: where it listens.
        end: where it carries them.
    """

    def __init__(self, entry: int, end: int) -> None:
        self._entry, self._end = entry, end
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire", daemon=True)
        self._flows = asyncio.Event()
        self._carried: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._do(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def cut(self) -> None:
        """Let nothing through: both sides wait for an answer that does not come."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def mend(self) -> None:
        """Let all through again, what waited first."""
        self._loop.call_soon_threadsafe(self._flows.set)

    def reset(self) -> int:
        """End all connections, and return how many there were; whoever comes again is carried."""
        return self._do(self._drop())

    def _do(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(10)

    async def _open(self) -> None:
        self._flows.set()
        self._server = await asyncio.start_server(self._enter, HOST, self._entry)

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._drop()

    async def _drop(self) -> int:
        carried = [*self._carried]
        for task in carried:
            task.cancel()
        await asyncio.gather(*carried, return_exceptions=True)
        return len(carried)

    def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._carry(reader, writer))
        self._carried.add(task)
        task.add_done_callback(self._carried.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            await self._flows.wait()
            there, back = await asyncio.open_connection(HOST, self._end)
            writers.append(back)
            pumps = {asyncio.ensure_future(self._pump(reader, back)), asyncio.ensure_future(self._pump(there, writer))}
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass  # the broker is away: who came learns it by the end of the connection
        finally:
            for each in writers:
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await self._flows.wait()
            writer.write(data)
            await writer.drain()
