"""A model that answers no more: what is done by then is kept, and the rest says so."""


class Stopped(RuntimeError):
    """The model gives no more answers: its queries are spent, or whoever answers for it has failed too often."""
