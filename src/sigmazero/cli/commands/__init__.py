"""One file per command: `hello.py` has a function `hello`, or a `typer.Typer` called `app` with commands of its own.

At its top a file imports only what is quick to load, and the rest in its functions: help must not wait for torch.
"""
