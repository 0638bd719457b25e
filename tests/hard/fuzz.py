"""Changed files for each reader, thousands of them: `python -m tests.hard.fuzz --reader npz --count 10000`.

A reader may say in one line, with an error of its own, what is wrong. It may not raise anything else, take a gigabyte
or a second, start a program, or end the process. Files are read in processes of 250, which are watched from outside.
"""

import argparse
import json
import mmap
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.hard.bounded import ROOM, taken
from tests.hard.mutate import mutate
from tests.hard.readers import READERS, Reader

SHARE = 250
SECONDS = 1.0
HANGING = 60
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "socket.connect", "os.fork")
SLIPS = (NameError, AssertionError)
SWALLOWED = ("MemoryError", "Unable to allocate", "annot allocate memory")


def changed(reader: Reader, number: int) -> tuple[str, bytes]:
    """The file with this number: its name and its bytes."""
    dice = random.Random(number)
    seed = dice.choice(reader.seeds)
    return seed.name, seed.wrap(mutate(seed.data, dice))


def fuzz(name: str, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Read the files with these numbers; what was not as it should be."""
    reader = READERS[name]()
    faults: list[dict[str, Any]] = []
    at = mmap.mmap(-1, 8)  # the place in the list, seen by both processes
    todo = list(numbers)
    while todo:
        at[:] = bytes(8)
        share = todo[:SHARE]
        done, found = _share(reader, share, at)
        faults += found
        todo = todo[done:]
    return [{"reader": name, **fault} for fault in faults]


def _share(reader: Reader, numbers: list[int], at: mmap.mmap) -> tuple[int, list[dict[str, Any]]]:
    """How many of the files were read, and the faults among them."""
    most = taken() + ROOM
    ours, theirs = os.pipe()
    folder = Path(tempfile.mkdtemp())
    child = os.fork()
    if not child:
        os.close(ours)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        _work(reader, numbers, folder, at, theirs)
    os.close(theirs)
    said, last, since = b"", -1, time.monotonic()
    while True:
        ready, _, _ = select.select([ours], [], [], 1.0)
        if ready:
            part = os.read(ours, 1 << 16)
            if not part:
                break
            said += part
        now = int.from_bytes(at[:], "little")
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > HANGING:
            os.kill(child, signal.SIGKILL)
    os.close(ours)
    _, status = os.waitpid(child, 0)
    shutil.rmtree(folder)
    found = [json.loads(line) for line in said.splitlines()]
    place = int.from_bytes(at[:], "little")
    if os.WIFSIGNALED(status) or os.WEXITSTATUS(status):
        found.append({"file": numbers[place], "fault": f"the process ended with status {status}"})
        place += 1
    return place, found


def _work(reader: Reader, numbers: list[int], folder: Path, at: mmap.mmap, pipe: int) -> None:
    code = 1
    try:
        started: list[str] = []
        sys.addaudithook(lambda event, _: started.append(event) if event in FORBIDDEN else None)
        os.environ["SIGMAZERO_HOME"] = os.environ["XDG_CACHE_HOME"] = str(folder / "nowhere")
        for place, number in enumerate(numbers):
            at[:] = place.to_bytes(8, "little")
            fault = _read(reader, number, folder, started)
            if fault:
                os.write(pipe, json.dumps({"file": number, "fault": fault}).encode() + b"\n")
        at[:] = len(numbers).to_bytes(8, "little")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _read(reader: Reader, number: int, folder: Path, started: list[str]) -> str | None:
    """What is wrong with the way in which a file is read; None if nothing is."""
    name, data = changed(reader, number)
    place = folder / "f"
    place.mkdir()
    for other, content in reader.beside.items():
        if not name.startswith(other):
            (place / other).write_bytes(content)
    (place / name).write_bytes(data)
    begin, fault = time.process_time(), None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(place / name)
    except reader.errors as error:
        said = str(error)
        if "\n" in said or not said.isprintable() or len(said) > 2000 or any(word in said for word in SWALLOWED):
            fault = f"says {said[:500]!r}"
        if isinstance(error.__cause__, SLIPS):
            fault = f"calls its own mistake damage: {said[:500]}"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        fault = f"{type(error).__name__}: {str(error)[:300]} ({where.filename.rpartition('/')[2]}:{where.lineno})"
    took = time.process_time() - begin
    if took > SECONDS:
        fault = f"took {took:.1f} s"
    if started:
        fault = f"did {started[0]}"
        started.clear()
    shutil.rmtree(place)
    return fault


def main() -> None:
    """Read changed files, and print what was not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reader", choices=sorted(READERS), action="append", help="default: every one")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first file")
    given = parser.parse_args()
    failed = 0
    for name in given.reader or READERS:
        begin = time.monotonic()
        faults = fuzz(name, range(given.first, given.first + given.count))
        failed += len(faults)
        for fault in faults:
            print(json.dumps(fault))
        print(f"{name}: {given.count} files, {len(faults)} faults, {time.monotonic() - begin:.0f} s", flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
