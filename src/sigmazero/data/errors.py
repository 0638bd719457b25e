"""What can go wrong with data, as exceptions whose text says what to do next."""


class DataError(ValueError):
    """Data that cannot be used as it is: wrong format, damaged, or asked for wrongly."""


class MissingData(DataError, FileNotFoundError):
    """Files that are in none of the searched folders."""


class MissingNotes(MissingData):
    """A table without the file beside it that says what its columns are; these are its names."""

    table = notes = ""

    @classmethod
    def of(cls, table: str, notes: str) -> "MissingNotes":
        """The error about a table."""
        draft = "data.tables.draft(path) writes a first one"
        error = cls(f"{table}: needs {notes} beside it, which says what its columns are; {draft}")
        error.table, error.notes = table, notes
        return error
