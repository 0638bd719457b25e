"""A store written anew from what others have: whole and sound, or not at all."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sigmazero.core.files import replacing
from sigmazero.store import checksums, database
from sigmazero.store.database import StoreError


@contextmanager
def fresh(new: Path, made: str) -> Iterator[sqlite3.Connection]:
    """An empty store to fill, which takes its place if nothing went wrong; `made` says how it is, for an error."""
    with replacing(new) as part, database.explained(part):
        base = database.open_writing(part)
        try:
            base.execute("BEGIN IMMEDIATE")
            yield base
            base.execute("COMMIT")
            if wrong := list(checksums.audit(base)):
                raise StoreError(f"what was {made} is not sound: {wrong[0].what}")
            database.settle(base)
        finally:
            base.close()
