"""Runs of `realm init`."""

from realm_tf import cli
from realm_tf.models import model_directory


def init(source, output, *more, kind="hf"):
    """The model that the command makes of files."""
    command = ["init", "--from", kind, "--source", str(source), *more]
    assert cli.main([*command, "--output", str(output)]) == 0
    return model_directory.load(str(output))
