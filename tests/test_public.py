"""The names of `realm_tf` that a notebook uses."""

import subprocess
import sys

import pytest

import realm_tf
from realm_tf import cli


def test_every_public_name_is_there():
    for name in realm_tf.__all__:
        assert getattr(realm_tf, name) is not None, name
    assert set(realm_tf.__all__) <= set(dir(realm_tf))
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        realm_tf.frobnicate  # noqa: B018


def test_what_a_command_does_python_does():
    for command in cli.COMMANDS:
        operation = cli.operation_class(command)
        assert getattr(realm_tf, operation.__name__) is operation


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, realm_tf\n"
        "heavy = {'tensorflow', 'keras', 'apache_beam', 'numpy', 'grpc'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
