import json

import pytest
import stage_directories

from realm_tf import cli
from realm_tf.artifacts import artifact
from realm_tf.errors import InputError
from realm_tf.operations.annotate import Annotate
from realm_tf.operations.inspect import Inspect
from realm_tf.training import plots


def _run(*arguments):
    inspect = cli.parse(Inspect, [str(each) for each in arguments])
    print(inspect.report(inspect.run()))


def test_it_prints_the_metadata(blocks_dir, capsys):
    _run(blocks_dir)
    first, rest = capsys.readouterr().out.split("\n", 1)
    assert first.startswith(f"Blocks({blocks_dir!r}: 11 blocks, fingerprint ")
    printed = json.loads(rest)
    assert printed == artifact.read(blocks_dir, kind="blocks")
    assert printed["num_blocks"] == 11
    assert printed["counts"]["articles_kept"] == 6


def test_it_writes_a_page_of_spans(blocks_dir, tmp_path, capsys):
    annotated, page = str(tmp_path / "annotated"), tmp_path / "spans.html"
    Annotate(output=annotated, tagger="rules", blocks=blocks_dir).run()
    _run(annotated, "--html", page)
    assert capsys.readouterr().out.endswith(f"\n{page}: open it in a browser\n")
    shown = page.read_text()
    assert shown.count("<article>") == 11
    # Which spans are marked, test_page.py tells.
    assert "<mark " in shown


def test_a_page_of_something_else(blocks_dir, tmp_path):
    page = tmp_path / "spans.html"
    with pytest.raises(InputError, match="holds 'blocks', expected 'annotated"):
        _run(blocks_dir, "--html", page)
    assert not page.exists()


def test_of_an_exports_base_it_shows_the_served_version(tmp_path, capsys):
    for version in (2, 10, 11):
        stage_directories.write(
            str(tmp_path / "export" / str(version)),
            kind="saved_model",
            files={"saved_model.pb": ""},
        )
    (tmp_path / "export" / "11" / "saved_model.pb").unlink()
    _run(tmp_path / "export")
    assert capsys.readouterr().out.startswith(
        f"SavedModel('{tmp_path}/export/10':"
    )


def test_it_plots_runs(tmp_path, capsys):
    """Of one that is still going, too; by their names, or paths."""
    paths = [tmp_path / name for name in ("one", "two", "more/two")]
    for path in paths:
        directory = path.with_name(f"{path.name}.partial")
        directory.mkdir(parents=True)
        (directory / "log.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    plot = tmp_path / "runs.png"
    _run(*paths[:2], "--plot", plot)
    assert capsys.readouterr().out == f"{plot}\n"
    assert plot.read_bytes().startswith(b"\x89PNG")
    drawn = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "plot_training", lambda *args: drawn.append(args))
        _run(*paths[:2], "--plot", plot)
        _run(*paths[1:], "--plot", plot)
    assert [list(logs) for logs, _ in drawn] == [
        ["one", "two"],
        [str(path) for path in paths[1:]],
    ]
    assert drawn[0][0]["two"] == [{"step": 1, "loss": 2.0}]


def test_what_cannot_be_plotted(blocks_dir, tmp_path):
    plot = tmp_path / "runs.png"
    with pytest.raises(InputError, match="holds no log.jsonl"):
        _run(blocks_dir, "--plot", plot)
    with pytest.raises(InputError, match="--html is not for --plot"):
        _run(blocks_dir, "--plot", plot, "--html", "x.html")
    with pytest.raises(InputError, match="one directory .* Received: none"):
        _run()
    with pytest.raises(InputError, match="Expected one directory"):
        _run(blocks_dir, blocks_dir)
    assert not plot.exists()
