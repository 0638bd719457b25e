"""Run the command line in this process, as a user would in a terminal without colours."""

import contextlib
import io
import os
import sys
from dataclasses import dataclass
from unittest import mock

from sigmazero.__main__ import main


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it printed."""

    code: int
    stdout: str
    stderr: str


def run_command(*arguments: object, columns: int = 120) -> Ran:
    """Run `sigmazero ARGUMENTS` in the current folder; any exit code is returned, any other exception is raised."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    environment = {"COLUMNS": str(columns), "NO_COLOR": "1", "SIGMAZERO_DEBUG": "0"}
    code: object = 0
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "argv", ["sigmazero", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return Ran(code if isinstance(code, int) else 1, *texts)
