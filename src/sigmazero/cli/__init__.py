"""The command line: parse, call, print. What is computed lives elsewhere.

Each command is a file in `commands`; what several commands share is here.
"""

from sigmazero.cli import commands
from sigmazero.cli.app import app

commands.add_all(app)

__all__ = ["app"]
