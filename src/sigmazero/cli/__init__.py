"""The command line: parse, call one public function, print. What is computed lives elsewhere."""

from sigmazero.cli.app import app

__all__ = ["app"]
