"""Who may run beside whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from headway.runtime.room import Room

Door = Callable[[], AbstractAsyncContextManager[None]]


class Guest:
    """Somebody who enters, stays until told to leave, and leaves."""

    def __init__(self, door: Door) -> None:
        self.inside = False
        self._leave = asyncio.Event()
        self.task = asyncio.ensure_future(self._visit(door))

    async def _visit(self, door: Door) -> None:
        async with door():
            self.inside = True
            try:
                await self._leave.wait()
            finally:
                self.inside = False

    async def leave(self) -> None:
        self._leave.set()
        await asyncio.wait_for(self.task, 5)


async def rest() -> None:
    """Let everybody do what they can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_many_share_the_room() -> None:
    room = Room()
    guests = [Guest(room.shared) for _ in range(3)]
    await rest()
    assert all(guest.inside for guest in guests)
    for guest in guests:
        await guest.leave()


async def test_alone_waits_until_everybody_has_left() -> None:
    room = Room()
    guests = [Guest(room.shared), Guest(room.shared)]
    await rest()
    hermit = Guest(room.alone)
    await rest()
    seen = [hermit.inside]
    await guests[0].leave()
    await rest()
    seen.append(hermit.inside)
    await guests[1].leave()
    await rest()
    seen.append(hermit.inside)
    await hermit.leave()
    assert seen == [False, False, True]


async def test_nobody_comes_in_beside_who_is_alone() -> None:
    room = Room()
    hermit = Guest(room.alone)
    await rest()
    others = [Guest(room.shared), Guest(room.alone)]
    await rest()
    assert hermit.inside
    assert not any(other.inside for other in others)
    await hermit.leave()
    for other in reversed(others):
        await rest()
        await other.leave()


async def test_nobody_new_comes_in_while_somebody_waits_to_be_alone() -> None:
    room = Room()
    first = Guest(room.shared)
    await rest()
    hermit = Guest(room.alone)
    await rest()
    late = Guest(room.shared)
    await rest()
    seen = [(hermit.inside, late.inside)]
    await first.leave()
    await rest()
    seen.append((hermit.inside, late.inside))
    await hermit.leave()
    await rest()
    seen.append((hermit.inside, late.inside))
    await late.leave()
    assert seen == [(False, False), (True, False), (False, True)]


async def test_several_who_want_to_be_alone_come_in_one_by_one() -> None:
    room = Room()
    hermits = [Guest(room.alone) for _ in range(3)]
    for _ in hermits:
        await rest()
        (inside,) = [hermit for hermit in hermits if hermit.inside]
        await inside.leave()


@pytest.mark.parametrize("door", ["shared", "alone"])
async def test_who_gives_up_waiting_leaves_the_room_usable(door: str) -> None:
    room = Room()
    first = Guest(room.alone if door == "shared" else room.shared)
    await rest()
    waiting = Guest(getattr(room, door))
    await rest()
    waiting.task.cancel()
    await asyncio.wait({waiting.task})
    if door == "alone":  # nobody waits to be alone any more, so others come in at once
        beside = Guest(room.shared)
        await rest()
        assert beside.inside
        await beside.leave()
    await first.leave()
    for last in (Guest(room.shared), Guest(room.alone)):
        await rest()
        assert last.inside
        await last.leave()


@pytest.mark.parametrize("door", ["shared", "alone"])
async def test_who_is_cancelled_inside_leaves_the_room_usable(door: str) -> None:
    room = Room()
    guest = Guest(getattr(room, door))
    await rest()
    guest.task.cancel()
    await asyncio.wait({guest.task})
    hermit = Guest(room.alone)
    await rest()
    assert hermit.inside
    await hermit.leave()


async def test_an_error_inside_leaves_the_room_usable() -> None:
    room = Room()
    for door in (room.shared, room.alone):
        with pytest.raises(ValueError, match="inside"):
            async with door():
                raise ValueError("inside")
    async with room.alone():
        pass
