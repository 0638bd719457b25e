"""What can go wrong with data, as exceptions whose text says what to do next."""


class DataError(ValueError):
    """Data that cannot be used as it is: wrong format, damaged, or asked for wrongly."""


class MissingData(DataError, FileNotFoundError):
    """Files that are in none of the searched folders."""
