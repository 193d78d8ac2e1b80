"""The error that a user can mend."""


class InputError(ValueError):
    """Something the user gave is wrong: a file, a line, an argument.

    The message is one sentence or two: what was wrong, where, what was
    expected, how to mend it. `realm` prints it on one line and exits with
    status 2; every other exception is a defect and keeps its traceback.
    """


class Resumable(InputError):
    """Nothing is wrong with the input: the same command can go on."""


class DiskFull(Resumable):
    """The disk is full."""
