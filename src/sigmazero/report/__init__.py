"""Tables, figures and pages from stored facts: nothing here runs a model or an attack."""

__all__: list[str] = []
