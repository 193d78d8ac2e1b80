"""Every example of a docstring runs and prints what it says."""

import doctest
import importlib
import pathlib
import re

import pytest

import realm_tf

ROOT = pathlib.Path(realm_tf.__file__).parent.parent
# Installed inside realm_tf (setup.cfg, package_dir), kept beside it.
OUTER = ("beam_pipelines", "export", "serving")


def _modules_with_examples() -> list[str]:
    """Names of the modules, outer packages included, that hold `>>>`."""
    names = []
    for folder in ("realm_tf", *OUTER):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if re.search(r"^\s*>>> ", path.read_text(), re.MULTILINE):
                parts = path.relative_to(ROOT).with_suffix("").parts
                prefix = ("realm_tf",) * (folder in OUTER)
                name = ".".join(prefix + parts)
                names.append(name.removesuffix(".__init__"))
    return names


@pytest.mark.parametrize("name", _modules_with_examples())
def test_examples(name, tmp_path, monkeypatch):
    """What examples write, they write into a folder of their own."""
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_modules_are_found():
    """A test over no modules would pass."""
    names = _modules_with_examples()
    assert len(names) > 15
    assert any(name.startswith("realm_tf.export.") for name in names)
