"""Pages name only commands, options, files and links that exist."""

import pathlib
import re
import shlex
import textwrap
import typing

import pytest

from realm_tf import cli

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
# A file or folder of the repository, in code; `DIR/...` and the like are not.
_FILE = re.compile(
    r"(?<![\w/.-])(?:realm_tf|beam_pipelines|export|serving|benchmarks|tests|notebooks)"
    r"/[\w./-]*\w"
)


@pytest.fixture(params=PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def page(request):
    """A page of the documentation."""
    return request.param


_PLAN = re.compile(
    r"^    \$ (realm plan .+)\n((?:    .*\n|\n)*?)(?=\S|    \$|\Z)", re.M
)


def test_plans_are_what_the_command_prints(capsys):
    pages = (ROOT / "docs/measurements").glob("*.md")
    plans = [plan for page in pages for plan in _PLAN.findall(page.read_text())]
    assert len(plans) == 1
    for command, shown in plans:
        assert cli.main(shlex.split(command)[1:]) == 0
        assert textwrap.dedent(shown).strip() == capsys.readouterr().out.strip()


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_readme_has_a_line_for_each_command():
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| ((?:`[a-z -]+`(?:, )?)+) \|", text, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([a-z -]+)`", row)]
    assert sorted(named) == sorted(cli.COMMANDS)


def test_the_python_of_the_readme_runs(
    tmp_path, monkeypatch, capsys, model_dir, articles_path
):
    (code,) = re.findall(
        r"^```python\n(.*?)^```$", PAGES[0].read_text(), re.M | re.S
    )
    code = code.replace("quickstart-output/model", model_dir)
    monkeypatch.chdir(tmp_path)
    exec(code.replace("corpus.jsonl", articles_path), {})
    answer, *candidates = capsys.readouterr().out.splitlines()
    assert "https://example.org/" in answer
    # The six articles are shorter than blocks; five are read.
    assert len(candidates) == 5


def test_links_lead_somewhere(page):
    for target, anchor in _LINK.findall(page.read_text()):
        path = (page.parent / target) if target else page
        assert path.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
            slugs = [
                re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
                for title in titles
            ]
            assert anchor in slugs, f"{target}#{anchor}"


def test_files_and_what_is_in_them_are_there(page):
    text = page.read_text()
    for name in _FILE.findall(" ".join(_code(text))):
        assert (ROOT / name).exists(), name
    # `FILE.py`, `Class.method`
    for name, inside in re.findall(
        r"`([\w/]+\.py)`,\s+`(?!\w+\.py)([\w.]+)`", text
    ):
        for word in inside.split("."):
            content = (ROOT / name).read_text()
            assert re.search(rf"\b(?:def|class) {word}\b", content), inside


def test_commands_take_their_options(page):
    """Each `realm COMMAND` in a line of its own."""
    for code in _blocks(page.read_text())[0]:
        for line in code.replace("\\\n", " ").splitlines():
            if line.strip().startswith("realm "):
                # Without what a shell does with the output.
                command = re.split(r" [|>] ", line)[0]
                _parse(*shlex.split(command, comments=True)[1:])


def test_commands_in_sentences_have_their_options(page):
    """Each `realm COMMAND` of running text, which may leave options out."""
    text = _blocks(page.read_text())[1]
    for words in map(str.split, re.findall(r"`realm ([a-z][^`]*)`", text)):
        name, arguments = cli.split(words)
        options = _options(cli.operation_class(name))
        given = {each for each in arguments if each.startswith("--")}
        assert given <= options, given - options


def test_options_in_sentences_exist(page):
    """Each `--option` of running text, but Beam's and those of benchmarks."""
    known = {"--runner", "--experiments", "--data-dir"}
    for name in cli.COMMANDS:
        known |= _options(cli.operation_class(name))
    text = _blocks(page.read_text())[1]
    # Beam has `_` in names.
    named = {x for x in re.findall(r"`(--[\w-]+)", text) if "_" not in x}
    assert named <= known, named - known


def _options(kind):
    """The options of a command."""
    options = {"--help"}
    for field, hint in typing.get_type_hints(kind, include_extras=True).items():
        names = [
            getattr(extra, "name", None)
            for extra in getattr(hint, "__metadata__", ())
        ]
        name = next(filter(None, names), field)
        options.add(f"--{name.strip('_').replace('_', '-')}")
    return options


def _parse(*words):
    name, arguments = cli.split(list(words))
    parsed = cli.parse(cli.operation_class(name), arguments)
    others = getattr(parsed, "beam_options", ())
    # Pipelines pass what they do not know to Beam; Beam has `_` in names.
    assert not [word for word in others if re.match(r"--\w+-", word)], others


def _blocks(text):
    """Fenced and indented blocks of code, and the text without them."""
    found = []
    for pattern in (r"^```\w*\n((?s:.*?))^```$", r"((?:^ {4,}\S.*\n)+)"):
        found += re.findall(pattern, text, re.MULTILINE)
        text = re.sub(pattern, "", text, flags=re.MULTILINE)
    return found, text


def _code(text):
    """Blocks of code, and code between backticks."""
    found, text = _blocks(text)
    return [*found, *re.findall(r"`([^`]+)`", text)]
