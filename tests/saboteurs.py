"""Breaks the product on purpose, one guard at a time, and sees whether a test notices.

    python -m tests.saboteurs [--list] [--only PART-OF-A-NAME]... [--despite-failures] [-j JOBS] [-o table|json]

Each condition of the SQL that writes is a guard, and so is each CHECK and each line of a trigger; guards that are
written in Python are listed below as texts to replace. For each, the tests run against a copy of the package in which
that one guard is missing: the fast ones first, then, if it is still alive, those that are slow or kill processes. A
guard that is missed by no test is reported as ALIVE: either a test is missing, or the guard is not needed.

Ends with 0 if every saboteur was caught, 1 if one was not, 2 if the tests fail without sabotage or a text that is to
be replaced is no longer there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SQLITE = "adapters/sqlite"
KNOWN = ROOT / ".pytest_cache" / "saboteurs.json"
"""Which test caught whom the last time: it is asked first, so that a second run takes half the time."""

WRITES = ("UPDATE", "DELETE", "INSERT")
DECIDING_READS = {"due", "heads", "ready", "settled_by"}
"""Reads whose conditions are guards too: what may be taken or published now, and whose settle it was."""

APART = {"app", "core", "test_docs.py", "test_import.py", "test_postgres.py", "test_retry.py", "saboteurs.py"}
"""Tests of something else than the ledger and the worker: only a saboteur that names them is shown to them."""

FAST, SLOW, ALL = "not slow and not crash and not postgres", "(slow or crash) and not postgres", "not postgres"
USAGE = 4
"""What pytest ends with when it is asked for a test that there is not."""


PATIENCE = 30
"""How long one test may take, in seconds."""

DOUBTS = 4
"""How many tests may fail only once before nothing more is expected of a saboteur."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saboteur:
    """One text of one file of the package, and what is put in its place. `first` are the tests that run first."""

    name: str
    file: str
    old: str
    new: str
    at: int | None = None
    first: tuple[str, ...] = ("ports", "test_guards.py", "runtime")

    def break_in(self, package: Path) -> None:
        """Do it to a copy of the package."""
        path = package / self.file
        text = path.read_text(encoding="utf-8")
        at = self.at
        if at is None:
            if text.count(self.old) != 1:
                raise Misfit(f"{self.name}: {self.file} has its text {text.count(self.old)} times, not once")
            at = text.index(self.old)
        path.write_text(text[:at] + self.new + text[at + len(self.old) :], encoding="utf-8")


class Misfit(Exception):
    """The text that a saboteur replaces is not there: the code has moved on, and the saboteur must follow."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a saboteur: `killed`, `ALIVE`, or `broken` where the tests could not even begin."""

    name: str
    file: str
    verdict: str
    by: str
    seconds: float


# -- the guards in SQL

_SECTION = re.compile(r"^-- (?:name|part): (\w+)\n", re.MULTILINE)
_TABLE = re.compile(r"^CREATE (?:TABLE|TRIGGER) (\w+)", re.MULTILINE)


def in_statements(file: str, text: str) -> Iterator[Saboteur]:
    """A guard for each condition of each statement that writes, and for each ON CONFLICT."""
    sections = list(_SECTION.finditer(text))
    ends = [section.start() for section in sections[1:]] + [len(text)]
    for section, end in zip(sections, ends, strict=True):
        name = section[1]
        statement = text[section.end() : end]
        if not statement.startswith(WRITES) and name not in DECIDING_READS:
            continue
        for at, guard, instead in conditions(statement):
            yield Saboteur(
                name=f"{Path(file).stem}.{name}: {' '.join(guard.split())}",
                file=f"{SQLITE}/{file}",
                old=guard,
                new=instead,
                at=section.end() + at,
            )


def conditions(statement: str) -> Iterator[tuple[int, str, str]]:
    """Where each guard of a statement is, its text, and the statement's text without it."""
    for found in re.finditer(r"^ *(WHERE|AND|ON CONFLICT) (.*)$", statement, re.MULTILINE):
        if found[1] == "ON CONFLICT":
            yield found.start(1), statement[found.start(1) : found.end()], ""
        elif not found[2].endswith(" IN ("):  # the conditions of that inner query are guards of their own
            end = balanced(statement, found.start(2))
            yield found.start(2), statement[found.start(2) : end], "TRUE"


def balanced(statement: str, start: int) -> int:
    """Where a condition ends that may go on over several lines."""
    depth = 0
    for at in range(start, len(statement)):
        character = statement[at]
        depth += (character == "(") - (character == ")")
        if depth < 0 or (depth == 0 and character == "\n"):
            return at
    return len(statement)


def in_schema(file: str, text: str) -> Iterator[Saboteur]:
    """A guard for each CHECK, and for each line of a trigger."""
    for found in re.finditer(r"^    (CHECK \(.*\)),?$|^    (DELETE FROM .*;)$", text, re.MULTILINE):
        check, line = found[1], found[2]
        table = _TABLE.findall(text, 0, found.start())[-1]
        guard, instead = (check, "CHECK (TRUE)") if check else (line, "")
        yield Saboteur(
            name=f"{Path(file).stem}.{table}: {guard}",
            file=f"{SQLITE}/{file}",
            old=guard,
            new=instead,
            at=found.start(1 if check else 2),
        )


# -- the guards in Python: a name for what is broken, the text, and what is put in its place

CONSUMER = "runtime/consumer.py"
WORKER = "runtime/worker.py"
LEASE = "runtime/lease.py"
LEDGER = "adapters/sqlite/ledger.py"
AT_RUN = ("test_guards.py", "runtime", "ports")
AT_CORE = ("core", "ports", "runtime")

IN_PYTHON = (
    Saboteur(
        name="a delivery is acknowledged although its settle was lost",
        file=CONSUMER,
        old="                        return Fate.NOT_OURS",
        new="                        return Fate.ACCOUNTED",
        first=AT_RUN,
    ),
    Saboteur(
        name="a delivery is acknowledged although the lease may be over",
        file=CONSUMER,
        old="                    if lease_good:",
        new="                    if True:",
        first=AT_RUN,
    ),
    Saboteur(
        name="a delivery is acknowledged before its work is settled",
        file=CONSUMER,
        old="            fate = await self._fate(delivery)",
        new="            await broker.acknowledge(delivery)\n            fate = await self._fate(delivery)",
        first=AT_RUN,
    ),
    Saboteur(
        name="a delivery whose work another worker runs is acknowledged",
        file=CONSUMER,
        old="                case claims.Busy(item) if item.carrier is not Carrier.LEDGER:",
        new="                case claims.Busy(item) if False:",
        first=AT_RUN,
    ),
    Saboteur(
        name="success is recorded inside the try around the work",
        file=WORKER,
        old="                scope.end()\n            except",
        new="                scope.end()\n                return await self._succeed(scope)\n            except",
        first=AT_RUN,
    ),
    Saboteur(
        name="an attempt that is repeated in place is not noted",
        file=WORKER,
        old="            if attempt is not None and not await self._note(attempt):",
        new="            if False:",
        first=AT_RUN,
    ),
    Saboteur(
        name="work that has crashed a worker runs beside others",
        file=WORKER,
        old="return self._room.alone() if item.crashes else self._room.shared()",
        new="return self._room.shared()",
        first=AT_RUN,
    ),
    Saboteur(
        name="it is not written down that work runs alone",
        file=WORKER,
        old="            if self.item.crashes and not await self._renew(alone=True):",
        new="            if False:",
        first=AT_RUN,
    ),
    Saboteur(
        name="being alone in the room keeps nobody out",
        file="runtime/room.py",
        old="                self._alone = True",
        new="                self._alone = False",
        first=AT_RUN,
    ),
    Saboteur(
        name="who waits to be alone is passed by newcomers",
        file="runtime/room.py",
        old="lambda: not self._alone and not self._waiting_alone",
        new="lambda: not self._alone",
        first=AT_RUN,
    ),
    Saboteur(
        name="nobody asks before the handler is called",
        file=WORKER,
        old="decision: decisions.Decision = decide(self.stage.policy, None, self._history(), time.monotonic())",
        new="decision: decisions.Decision = decisions.Retry(0.0)",
        first=AT_RUN,
    ),
    Saboteur(
        name="what a failed handler wrote stays",
        file=WORKER,
        old="        why = scope.cause_of(error)\n        await scope.roll_back()",
        new="        why = scope.cause_of(error)",
        first=AT_RUN,
    ),
    Saboteur(
        name="a handler whose lease is lost runs on",
        file="runtime/handler.py",
        old="        loop.call_soon_threadsafe(task.cancel)",
        new="        pass",
        first=AT_RUN,
    ),
    Saboteur(
        name="the heartbeat renews nothing",
        file=LEASE,
        old="            held = list(self._leases.values())",
        new="            held = []",
        first=AT_RUN,
    ),
    Saboteur(
        name="the heartbeat does not extend what was granted",
        file=LEASE,
        old="            if granted:\n                lease.extend(asked_at)",
        new="            if granted:\n                pass",
        first=AT_RUN,
    ),
    Saboteur(
        name="the heartbeat does not tell who lost the lease",
        file=LEASE,
        old="            lease.lose()",
        new="            pass",
        first=AT_RUN,
    ),
    Saboteur(
        name="a lease that is over is live for its holder",
        file=LEASE,
        old="return not self.lost and time.monotonic() < self._until",
        new="return not self.lost",
        first=AT_RUN,
    ),
    Saboteur(
        name="the relay publishes without leading",
        file="runtime/relay.py",
        old="        if not isinstance(answer, claims.Won):",
        new="        if False:",
        first=AT_RUN,
    ),
    Saboteur(
        name="the relay forgets an event before the broker has it",
        file="runtime/relay.py",
        old="            await self._broker.publish(row.letter)",
        new="            await self._outbox.sent([row.id])\n            await self._broker.publish(row.letter)",
        first=AT_RUN,
    ),
    Saboteur(
        name="the same success sends other ids when it is repeated",
        file="runtime/context.py",
        old='identity = digest("emit", self.item.id, self.item.successes, len(self.emits))',
        new="identity = uuid.uuid4().hex",
        first=AT_RUN,
    ),
    Saboteur(
        name="running work may be discarded under its lease",
        file="core/settlements.py",
        old="only_if_free=stranded",
        new="only_if_free=False",
        first=AT_CORE,
    ),
    Saboteur(
        name="the table of moves is not asked when a move is planned",
        file="core/settlements.py",
        old="    if not states.allows(seen.state, planned.item.state, planned.move):",
        new="    if False:",
        first=AT_CORE,
    ),
    Saboteur(
        name="the ledger keeps work without its bytes",
        file="core/settlements.py",
        old="    if carrier is Carrier.LEDGER and seen.body is None:",
        new="    if False:",
        first=AT_CORE,
    ),
    Saboteur(
        name="the triggers of the table of moves are empty",
        file=LEDGER,
        old='    return f"""\nCREATE TRIGGER',
        new='    return ""\n    return f"""\nCREATE TRIGGER',
    ),
    Saboteur(
        name="items may be born in any state",
        file=LEDGER,
        old="WHEN NEW.state NOT IN ({births})",
        new="WHEN FALSE",
    ),
    Saboteur(
        name="items may move from any state to any other",
        file=LEDGER,
        old="WHEN OLD.state || '>' || NEW.state NOT IN ({moves})",
        new="WHEN FALSE",
    ),
    Saboteur(
        name="records may end in any state",
        file=LEDGER,
        old="WHEN OLD.state NOT IN ({ends})",
        new="WHEN FALSE",
    ),
    Saboteur(
        name="an epoch is used twice",
        file=LEDGER,
        old='    return int(db.execute(SQL["use_epoch"]).fetchone()[0])',
        new='    return int(db.execute("SELECT value + 1 FROM headway_sequence").fetchone()[0])',
    ),
    Saboteur(
        name="what a handler wrote is committed although its settle was lost",
        file=LEDGER,
        old="        if isinstance(answer, Settled):\n            transaction.commit()",
        new="        if True:\n            transaction.commit()",
    ),
    Saboteur(
        name="a settle writes no history",
        file=LEDGER,
        old='        db.execute(SQL["add_audit"], _audit_values(seen, planned, epoch, by, token))',
        new="        pass",
    ),
    Saboteur(
        name="a claim that is repeated is not recognised",
        file="core/claims.py",
        old="    if item.state is State.RUNNING and item.holder == wanted.holder:",
        new="    if False:",
        first=AT_CORE,
    ),
    Saboteur(
        name="a key that is used with another payload is not noticed",
        file="core/claims.py",
        old="    if item.fingerprint != wanted.fingerprint:",
        new="    if False:",
        first=AT_CORE,
    ),
    Saboteur(
        name="a takeover counts no crash",
        file="adapters/sqlite/ledger.sql",
        old="    crashes = crashes + (state = 'running' AND carrier <> 'leader'),\n",
        new="",
    ),
    Saboteur(
        name="a crash while it ran alone is no strike",
        file="adapters/sqlite/ledger.sql",
        old="    strikes = strikes + (state = 'running' AND (alone OR carrier = 'caller')),\n",
        new="",
    ),
    Saboteur(
        name="a step that fails leaves half of what it wrote",
        file="adapters/sqlite/store.py",
        old='        connection.execute("ROLLBACK TO step")',
        new="        pass",
    ),
    Saboteur(
        name="who asked is answered before the commit",
        file="adapters/sqlite/store.py",
        old="            self.probe(Point.WRITTEN)\n",
        new="            for (_, future), answer in zip(batch, answers, strict=True):\n"
        "                _resolve(future, answer)\n"
        "            batch.clear()\n"
        "            answers = []\n"
        "            self.probe(Point.WRITTEN)\n",
        first=("test_guards.py", "ports", "runtime"),
    ),
    Saboteur(
        name="a transaction is never too long",
        file="adapters/sqlite/transaction.py",
        old="        self._watch.start()",
        new="        pass",
    ),
    Saboteur(
        name="what a handler writes after the end of its transaction commits by itself",
        file="adapters/sqlite/transaction.py",
        old="        with self.alone:\n            if self.ended is not None:",
        new="        with self.alone:\n            yield\n            return\n            if self.ended is not None:",
        first=("test_guards.py", "ports", "runtime"),
    ),
    Saboteur(
        name="a handler may commit by itself",
        file="adapters/sqlite/transaction.py",
        old="        ours = self._committing or self.over",
        new="        ours = True",
    ),
)


def all_of_them(package: Path) -> list[Saboteur]:
    """Every saboteur, in the order of the files."""
    found: list[Saboteur] = []
    for file in ("ledger.sql", "broker.sql", "routing.sql"):
        found += in_statements(file, (package / SQLITE / file).read_text(encoding="utf-8"))
    for file in ("ledger_schema.sql", "broker_schema.sql", "routing_schema.sql"):
        found += in_schema(file, (package / SQLITE / file).read_text(encoding="utf-8"))
    return [*found, *IN_PYTHON]


# -- running the tests against a copy

PROBE = """
import collections
import os
import pathlib

import headway

home = pathlib.Path(os.environ["SABOTAGED"])
assert pathlib.Path(headway.__file__).is_relative_to(home), f"{headway.__file__} is not the copy"
notes = open(home / "notes", "a", buffering=1)
took = collections.Counter()


def pytest_runtest_logstart(nodeid, location):
    print("began", nodeid, file=notes)


def pytest_runtest_logreport(report):
    took[report.nodeid.split("::")[0]] += report.duration
    if report.failed:
        print("failed", report.nodeid, file=notes)


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        for file, seconds in took.items():
            print("took", f"{seconds:.3f}", file, file=notes)
"""
# It runs inside of pytest: sees that the copy is what is tested, and notes what happens.


class Range:
    """A snapshot of the repository, so that whoever edits it meanwhile changes no result."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.tree = home / "tree"
        hidden = shutil.ignore_patterns(".*", "__pycache__", "build", "dist")
        shutil.copytree(ROOT, self.tree, ignore=hidden)
        (home / "sabotage_probe.py").write_text(PROBE, encoding="utf-8")
        self.limit = 600.0
        self.left_out: list[str] = []
        self.running: set[int] = set()
        self.took: dict[str, float] = {}
        self.known: dict[str, str] = json.loads(KNOWN.read_text(encoding="utf-8")) if KNOWN.exists() else {}

    @property
    def package(self) -> Path:
        """The package as it is."""
        return self.tree / "src" / "headway"

    def copy(self, name: str) -> Path:
        """A folder with a copy of the package of its own."""
        place = self.home / name
        shutil.copytree(self.package, place / "headway")
        return place

    def paths(self, first: Sequence[str]) -> list[str]:
        """The files that a saboteur is shown: those that are meant for it first, and quick ones before slow ones."""
        ranked: list[tuple[int, float, str]] = []
        for path in sorted(self.tree.glob("tests/**/test_*.py")):
            group, file = path.relative_to(self.tree).parts[1], path.relative_to(self.tree).as_posix()
            if group in first or group not in APART:
                rank = first.index(group) if group in first else len(first)
                ranked.append((rank, self.took.get(file, 0.0), file))
        return [file for _, _, file in sorted(ranked)]

    def run(self, place: Path, tests: Sequence[str], marks: str, *more: str) -> tuple[int | None, str]:
        """Run tests against the package of a place; the exit code is None where they had to be stopped."""
        (place / "notes").unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--no-header",
            "-p",
            "no:cacheprovider",
            "-p",
            "sabotage_probe",
        ]
        command += [*tests, "-m", marks, f"--basetemp={place / 'tmp'}", f"--timeout={PATIENCE}", *more]
        command += [f"--deselect={test}" for test in self.left_out]
        paths = os.pathsep.join([str(place), str(self.home)])
        environment = {
            **os.environ,
            "PYTHONPATH": paths,
            "PYTHONDONTWRITEBYTECODE": "1",
            "SABOTAGED": str(place),
            "HEADWAY_TEST_PATIENCE": "5",  # sabotage is often seen by what never happens
        }
        with subprocess.Popen(
            command,
            cwd=self.tree,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            self.running.add(process.pid)
            try:
                output, _ = process.communicate(timeout=self.limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                return None, output
            finally:
                self.running.discard(process.pid)
        return process.returncode, output

    def stop(self) -> None:
        """End the tests that run; each is the leader of a group of its own."""
        for pid in list(self.running):
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def notes_of(place: Path, what: str) -> list[str]:
    """The tests that began, or failed, in a place."""
    path = place / "notes"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line.removeprefix(f"{what} ") for line in lines if line.startswith(f"{what} ")]


def hunt(range_: Range, saboteur: Saboteur, number: int) -> Verdict:
    """Let one saboteur loose, and say who caught it."""
    begun = time.monotonic()
    place = range_.copy(f"{number:03d}")
    try:
        saboteur.break_in(place / "headway")
        paths, before = range_.paths(saboteur.first), range_.known.get(saboteur.name)
        verdict, by = "ALIVE", ""
        for tests, marks in [*([([before], ALL)] if before else []), (paths, FAST), (paths, SLOW)]:
            verdict, by = look_for(range_, place, tests, marks)
            if verdict != "ALIVE":
                break
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return Verdict(saboteur.name, saboteur.file, verdict, by, round(time.monotonic() - begun, 1))


def look_for(range_: Range, place: Path, tests: Sequence[str], marks: str) -> tuple[str, str]:
    """Run tests until one fails twice in a row: what fails once on a busy machine proves nothing."""
    doubtful: list[str] = []
    while len(doubtful) < DOUBTS:
        left_out = [f"--deselect={test}" for test in doubtful]
        code, output = range_.run(place, tests, marks, "-x", *left_out)
        if code in {0, 5}:
            break
        failed, began = notes_of(place, "failed"), notes_of(place, "began")
        if not began and code == USAGE and len(tests) == 1:
            break  # the test that caught it before is no longer there
        if not began:
            return "broken", " | ".join(output.splitlines()[-3:])
        test = (failed or began)[-1]
        again, _ = range_.run(place, [test], marks)
        if again not in {0, 5}:
            return "killed", test
        doubtful.append(test)
    return "ALIVE", ", ".join(f"failed only once: {test}" for test in doubtful)


def holds_without_sabotage(range_: Range, saboteurs: Sequence[Saboteur], *, jobs: int, despite: bool) -> bool:
    """Whether the tests pass as things are; how long they take says when a test that hangs has hung for too long."""
    begun = time.monotonic()
    place = range_.copy("base")
    first = tuple(dict.fromkeys(name for saboteur in saboteurs for name in saboteur.first))
    code, output = range_.run(place, range_.paths(first), FAST, "-n", str(jobs))
    failed = list(dict.fromkeys(notes_of(place, "failed")))
    for line in notes_of(place, "took"):
        seconds, file = line.split(" ", 1)
        range_.took[file] = float(seconds)
    shutil.rmtree(place, ignore_errors=True)
    took = time.monotonic() - begun
    range_.limit = max(120.0, 4 * jobs * took)
    if code == 0:
        say(f"without sabotage the fast tests pass, in {took:.0f} s")
    elif despite and failed:
        range_.left_out = failed
        say(f"without sabotage {len(failed)} tests fail, and are left out:", *failed)
    else:
        say(output, "the tests fail without any sabotage: mend that first, or leave them out with --despite-failures")
        return False
    return True


def say(*lines: str) -> None:
    """Tell the person who waits."""
    print(*lines, sep="\n", file=sys.stderr, flush=True)


def main() -> int:
    """Hunt all saboteurs, or those that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.saboteurs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="name the saboteurs, and do nothing")
    parser.add_argument("--only", action="append", metavar="NAME", help="only those with this in their name")
    parser.add_argument("--despite-failures", action="store_true", help="leave out tests that fail without sabotage")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 2, help="how many at once [all cores]")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    asked = parser.parse_args()

    package = ROOT / "src" / "headway"
    saboteurs = [
        saboteur
        for saboteur in all_of_them(package)
        if not asked.only or any(part in saboteur.name for part in asked.only)
    ]
    if asked.list:
        print(*(f"{saboteur.file}  {saboteur.name}" for saboteur in saboteurs), sep="\n")
        return 0
    if not saboteurs:
        parser.error("no saboteur has that in its name: see --list")

    with tempfile.TemporaryDirectory(prefix="headway-saboteurs-", ignore_cleanup_errors=True) as home:
        range_ = Range(Path(home))
        try:
            for saboteur in saboteurs:
                place = range_.copy("fit")
                saboteur.break_in(place / "headway")
                shutil.rmtree(place)
        except Misfit as misfit:
            say(str(misfit))
            return 2
        if not holds_without_sabotage(range_, saboteurs, jobs=asked.jobs, despite=asked.despite_failures):
            return 2
        verdicts = hunt_all(range_, saboteurs, asked.jobs)
        caught = {verdict.name: verdict.by for verdict in verdicts if verdict.verdict == "killed"}
        KNOWN.parent.mkdir(exist_ok=True)
        KNOWN.write_text(json.dumps({**range_.known, **caught}, indent=1), encoding="utf-8")
    if asked.output == "json":
        print(json.dumps([asdict(verdict) for verdict in verdicts], indent=2, ensure_ascii=False))
    uncaught = [verdict for verdict in verdicts if verdict.verdict != "killed"]
    say(f"{len(verdicts)} saboteurs, {len(uncaught)} not caught")
    for verdict in uncaught:
        say(f"{verdict.verdict}  {verdict.file}  {verdict.name}  {verdict.by}".rstrip())
    return 1 if uncaught else 0


def hunt_all(range_: Range, saboteurs: Sequence[Saboteur], jobs: int) -> list[Verdict]:
    """Hunt several at once, with a line for each when it is over."""
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(jobs) as pool:
        hunts = [pool.submit(hunt, range_, saboteur, number) for number, saboteur in enumerate(saboteurs)]
        try:
            for ended in as_completed(hunts):
                verdict = ended.result()
                verdicts.append(verdict)
                line = (
                    f"{len(verdicts):3d}/{len(saboteurs)} {verdict.seconds:6.1f} s  {verdict.verdict}  {verdict.name}"
                )
                say(f"{line}  by {verdict.by}" if verdict.by else line)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            range_.stop()
            raise
    return verdicts


if __name__ == "__main__":
    sys.exit(main())
