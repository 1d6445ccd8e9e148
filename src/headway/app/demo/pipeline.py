"""The pipeline of the demonstration: a service of two stages, as a user would write it.

The story sets the scene in a directory: `documents/<n>` is a document that arrives late, `mended` says that the bug in
`parse` is mended.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import msgspec

from headway import Context, DocumentNotFoundError, Event, Service, SyncContext, policies, retry

SCENE = Path(os.environ.get("HEADWAY_DEMO_SCENE", "."))
RACE = policies.EVENT_RACE.replace(base_delay=0.5, max_delay=4.0, jitter="equal")

app = Service("demo")
_failed_before: set[int] = set()


class ArchiveIngested(msgspec.Struct):
    """An archive has arrived."""

    archive: int
    trouble: str = ""


class ArchiveParsed(msgspec.Struct):
    """An archive was read."""

    archive: int
    messages: int


@retry(policies.DEFAULT.replace(base_delay=0.02))
async def fetch(archive: int, trouble: str) -> int:
    """A call that fails now and then, as calls do."""
    await asyncio.sleep(0.002)
    if trouble == "flaky" and archive not in _failed_before:
        _failed_before.add(archive)
        raise ConnectionError("the far end has hung up")
    return archive % 7 + 1


@app.on(ArchiveIngested, policy=RACE)
async def parse(event: Event[ArchiveIngested], ctx: Context) -> None:
    """The first stage: reads an archive and says so."""
    archive, trouble = event.data.archive, event.data.trouble
    if trouble == "late" and not (SCENE / "documents" / str(archive)).exists():
        raise DocumentNotFoundError(f"document {archive} is not there yet")
    if trouble == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble == "broken" and not (SCENE / "mended").exists():
        raise ValueError(f"archive {archive} has a header that this code does not know")
    messages = await fetch(archive, trouble)
    ctx.emit(ArchiveParsed(archive, messages))


@app.on(ArchiveParsed)
def count(event: Event[ArchiveParsed], ctx: SyncContext) -> None:
    """The second stage: writes its result into the ledger's database, in the transaction that settles it."""
    with ctx.transaction() as db:
        db.execute("CREATE TABLE IF NOT EXISTS demo_result (archive INTEGER PRIMARY KEY, messages INTEGER)")
        db.execute("INSERT INTO demo_result VALUES (?, ?)", (event.data.archive, event.data.messages))
