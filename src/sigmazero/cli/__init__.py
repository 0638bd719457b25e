"""The command line: parse, call, print. One file per command; what is computed lives elsewhere."""

from sigmazero.cli import (
    attack,
    auto,
    demo,
    doctor,
    export,
    fetch,
    listing,
    pages,
    report,
    run,
    status,
    validate,
    verify,
)
from sigmazero.cli.app import app

app.command("demo")(demo.demo)
app.command("attack")(attack.attack)
app.command("auto")(auto.auto)
app.command("doctor")(doctor.doctor)
app.command("fetch")(fetch.fetch)
app.add_typer(listing.app, name="list")
app.command("validate")(validate.validate)
app.command("run")(run.run)
app.command("status")(status.status)
app.command("verify")(verify.verify)
app.command("export")(export.export)
app.command("report")(report.report)
app.command("docs")(pages.docs)

__all__ = ["app"]
