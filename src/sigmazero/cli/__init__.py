"""The command line: parse, call, print. One file per command; what is computed lives elsewhere."""

from sigmazero.cli import attack, demo, doctor, fetch, listing, pages
from sigmazero.cli.app import app

app.command("demo")(demo.demo)
app.command("attack")(attack.attack)
app.command("doctor")(doctor.doctor)
app.command("fetch")(fetch.fetch)
app.add_typer(listing.app, name="list")
app.command("docs")(pages.docs)

__all__ = ["app"]
