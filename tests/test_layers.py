"""Imports point one way: to the same line or one above, and in no circle."""

import ast
import graphlib
import pathlib

import realm_tf

ROOT = pathlib.Path(realm_tf.__file__).parents[1]
FOLDERS = ("realm_tf", "beam_pipelines", "export", "serving")
# A package imports those of its own line and of the lines before it, inside
# functions too. A module is named where its line is not that of its package.
LAYERS = (
    ("errors", "version", "artifacts.paths"),
    ("losses", "metrics", "progress", "quickstart"),
    ("text", "articles"),
    ("artifacts", "configs"),
    ("models",),
    ("tagging",),
    ("data",),
    ("retrieval",),
    ("answering",),
    # A tagger is trained as the other models are.
    ("training", "tagging.train"),
    ("beam_pipelines",),
    ("checkpoints",),
    ("evaluation",),
    ("export",),
    ("serving",),
    # The bare package offers all.
    ("operations", "realm_tf"),
    ("cli",),
)
RANKS = {name: rank for rank, line in enumerate(LAYERS) for name in line}


def _name(path):
    """Of a module, without the package: `models.reader`, or `realm_tf`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = [part for part in parts if part != "__init__"]
    return ".".join(
        parts[1:] if parts[1:] and parts[0] == "realm_tf" else parts
    )


FILES = {
    _name(path): path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def _rank(module):
    """The line of a module: its own or that of the nearest package."""
    while module not in RANKS and "." in module:
        module = module.rpartition(".")[0]
    assert module in RANKS, f"{module} is not in LAYERS: say where it belongs."
    return RANKS[module]


def _imported(node):
    """The modules of ours that a statement imports."""
    if isinstance(node, ast.Import):
        names = [each.name for each in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [f"{node.module}.{each.name}" for each in node.names]
    else:
        names = []
    for name in names:
        if name.partition(".")[0] == "realm_tf":
            inside = name.removeprefix("realm_tf.")
            parent = inside.rpartition(".")[0]
            yield inside if inside in FILES else parent or "realm_tf"


def _upward(module, source):
    """(line, what is imported) of each import of a later line."""
    for node in ast.walk(ast.parse(source)):
        for found in _imported(node):
            if _rank(found) > _rank(module):
                yield node.lineno, found


def test_no_modules_import_each_other():
    edges = {
        module: {
            found
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            for found in _imported(node)
            if found in FILES
        }
        for module, path in FILES.items()
    }
    # It raises where there is a circle, and names it.
    graphlib.TopologicalSorter(edges).prepare()


def test_an_upward_import_is_found():
    source = "def f():\n    from realm_tf.training import trainers\n"
    assert list(_upward("models.reader", source)) == [(2, "training.trainers")]
    source = "from realm_tf.training.trainers import compile_trainer"
    assert list(_upward("models.reader", source)) == [(1, "training.trainers")]
    assert not list(_upward("operations.pretrain", source))
    assert list(_upward("models.reader", "import realm_tf"))


def test_imports_point_one_way():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module} imports {found}, which is "
        "on a later line of LAYERS: hand the object on, or move the name to a "
        "package of an earlier line."
        for module, path in FILES.items()
        for line, found in _upward(module, path.read_text("utf-8"))
    ]
    assert not wrong, "\n".join(wrong)
