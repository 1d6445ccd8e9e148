"""A process of its own for tests of contention: `python -m tests.ports.contender WHAT FILE`; prints JSON lines."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path

from headway.core import claims
from headway.core.item import Item
from headway.core.settlements import Done, Settled
from tests.world import World, open_world


def keys() -> list[str]:
    """What all contenders want."""
    return [f"k{number}" for number in range(50)]


async def race(world: World) -> list[str]:
    """Claim every key; the keys that were won."""
    answers = await asyncio.gather(*(world.claim(key, lease=60.0) for key in keys()))
    return [answer.item.key for answer in answers if isinstance(answer, claims.Won)]


async def drain(world: World) -> list[str]:
    """Take what is due until there is no more, settling each; what was taken and accepted."""
    taken: list[str] = []
    while items := await world.due(limit=7, lease=60.0):
        answers = await asyncio.gather(*(_done(world, item) for item in items))
        taken += [key for key in answers if key]
    return taken


async def _done(world: World, item: Item) -> str:
    return item.key if isinstance(await world.settle(item, Done()), Settled) else ""


async def contend(what: str, path: Path) -> list[str]:
    """Do one of them, as a client of the file."""
    async with open_world(path) as world:
        return await {"race": race, "drain": drain, "open": _nothing}[what](world)


async def _nothing(world: World) -> list[str]:
    return []


def in_threads(what: str, path: Path, count: int) -> list[list[str]]:
    """Do it from many threads at once, each with an event loop of its own, through one client and one connection."""
    outcomes: list[list[str]] = [[] for _ in range(count)]
    start = threading.Barrier(count)

    def run(place: int, world: World) -> None:
        start.wait()
        outcomes[place] = asyncio.run({"race": race, "drain": drain}[what](world))

    async def main() -> None:
        async with open_world(path) as world:
            threads = [threading.Thread(target=run, args=(place, world)) for place in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)

    asyncio.run(main())
    return outcomes


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(asyncio.run(contend(sys.argv[1], Path(sys.argv[2])))), flush=True)
