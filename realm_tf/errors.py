"""The error that a user can mend."""


class InputError(ValueError):
    """Something the user gave is wrong: a file, a line, an argument.

    The message is one sentence or two: what was wrong, where, what was
    expected, how to mend it. `realm` prints it on one line and exits with
    status 2; every other exception is a defect and keeps its traceback.
    """


class DiskFull(InputError):
    """The disk is full: what is there counts, and the same command goes on."""
