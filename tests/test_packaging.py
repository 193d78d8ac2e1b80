"""setup.cfg names every file that an installed package needs."""

import ast
import configparser
import importlib.metadata
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = ("realm_tf", "beam_pipelines", "export", "serving")
# spaCy is the user's, with its pipelines.
NOT_LISTED = {"realm_tf", "spacy"}
# Modules of an extra that not everybody installs.
NOT_INSTALLED = {"official": ["tf-models-official"]}


@pytest.fixture(scope="module")
def config():
    """setup.cfg, parsed."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


@pytest.fixture(scope="module")
def folders(config):
    """Package name to its folder, as installed."""
    moved = _pairs(config["options"]["package_dir"])
    found = {}
    for name in config["options"]["packages"].split():
        outer = next((m for m in moved if f"{name}.".startswith(f"{m}.")), "")
        inner = name.removeprefix(outer).strip(".").replace(".", "/")
        found[name] = pathlib.Path(moved.get(outer, ""), inner)
    return found


@pytest.fixture(scope="module")
def distributions():
    """Name of a module to the packages that bring it."""
    return NOT_INSTALLED | importlib.metadata.packages_distributions()


def _pairs(text):
    lines = (line for line in text.splitlines() if line.strip())
    return dict(map(str.strip, line.split("=")) for line in lines)


def test_every_folder_of_modules_is_a_package(folders):
    with_modules = {
        path.parent.relative_to(ROOT)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    }
    assert with_modules == set(folders.values())


def test_other_files_are_package_data(config, folders):
    """Pages, templates, Dockerfiles and the embedded corpus."""
    patterns = {
        folder / pattern
        for name, folder in folders.items()
        for pattern in config["options.package_data"].get(name, "").split()
    }
    files = [
        path.relative_to(ROOT)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert len(files) > 20
    left_out = [
        str(path)
        for path in files
        if not any(path.match(str(each)) for each in patterns)
    ]
    assert not left_out
    # A pattern without files was forgotten when they moved.
    assert not [
        str(each)
        for each in patterns
        if not any(path.match(str(each)) for path in files)
    ]


@pytest.mark.parametrize(
    ("where", "extras"),
    [
        *(
            (folder, {"gcp", "jax", "garden", "mcp", "dask"})
            for folder in FOLDERS
        ),
        ("tests", {"dev"}),
        ("docs", {"docs"}),
    ],
)
def test_imported_packages_are_required(config, distributions, where, extras):
    """By the package itself, or by the extra that is for this."""
    required = config["options"]["install_requires"].splitlines()
    for extra, lines in config["options.extras_require"].items():
        required += lines.splitlines() if extra in extras else []
    names = {
        re.split(r"[\[<>=; ]", line)[0].lower().replace("_", "-")
        for line in required
    }
    # Tests import the benchmarks, too.
    folders = (where, "benchmarks") if where == "tests" else (where,)
    ours = {path.stem for f in folders for path in (ROOT / f).rglob("*.py")}
    missing = {
        module
        for module in _imported(ROOT / where) - ours - NOT_LISTED
        if not names.intersection(
            name.lower().replace("_", "-")
            for name in distributions.get(module, ())
        )
    }
    assert not missing


def _imported(folder):
    """The first words of all absolute imports that are not Python's own."""
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update(each.name for each in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module)
    return {name.split(".")[0] for name in found} - sys.stdlib_module_names


def test_the_fast_tier_covers_every_folder():
    tests = ROOT / "tests"
    fast = {tests / name for name in (tests / "fast.txt").read_text().split()}
    assert all(path.is_file() for path in fast)
    # The tests of these take minutes.
    for folder in {path.parent for path in tests.glob("*/test_*.py")}:
        if folder.name not in ("notebooks", "benchmarks"):
            assert any(path.is_relative_to(folder) for path in fast), folder


def test_setup_names_the_pythons_that_fit(config, tmp_path):
    done = subprocess.run(
        ["make", "setup", "PYTHON=false", f"VENV={tmp_path}/venv"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    named = re.findall(r"Python :: (3\.\d+)", config["metadata"]["classifiers"])
    *others, last = named
    expected = f"expected Python {', '.join(others)} or {last}, found: false."
    assert done.returncode and expected in done.stderr
    assert config["options"]["python_requires"] == ">=3.11,<3.14"
    assert not list(tmp_path.iterdir())
