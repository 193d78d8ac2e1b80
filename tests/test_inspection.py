import argparse
import json

import pytest

from beam_pipelines import annotate_spans
from realm_tf import inspection
from realm_tf import stages
from realm_tf.errors import InputError


def _run(*arguments):
    parser = argparse.ArgumentParser()
    inspection.add_arguments(parser)
    inspection.run(parser.parse_args([str(a) for a in arguments]), [])


def test_it_prints_the_metadata(blocks_dir, capsys):
    _run(blocks_dir)
    printed = json.loads(capsys.readouterr().out)
    assert printed == stages.read(blocks_dir, kind="blocks")
    assert printed["num_blocks"] == 11
    assert printed["counts"]["articles_kept"] == 6


@pytest.mark.parametrize(
    "fixture, kind",
    [
        ("blocks_dir", "blocks"),
        ("model_dir", "model"),
        ("embeddings_dir", "embeddings"),
        ("brute_force_index_dir", "index"),
        ("scann_index_dir", "index"),
    ],
)
def test_every_kind_says_what_it_is(fixture, kind, request):
    directory = request.getfixturevalue(fixture)
    metadata = inspection.inspect(directory)
    assert metadata["kind"] == kind
    assert len(metadata["fingerprint"]) == 16


def test_it_prints_a_block(blocks_dir, capsys):
    _run(blocks_dir, "--block", 8)
    # Of the second shard.
    assert capsys.readouterr().out.endswith(
        "\nNile  https://example.org/nile\nThe water of the Nile is brown.\n"
    )


@pytest.mark.parametrize("block_id", [-1, 11])
def test_a_block_that_is_not_there(blocks_dir, block_id):
    with pytest.raises(InputError, match=f"0 to 10.*--block {block_id}"):
        inspection.read_block(blocks_dir, block_id)


def test_a_block_of_something_else(model_dir):
    with pytest.raises(InputError, match="holds 'model', expected 'blocks'"):
        inspection.read_block(model_dir, 0)


def test_it_writes_a_page_of_spans(blocks_dir, tmp_path, capsys):
    annotated, page = str(tmp_path / "annotated"), tmp_path / "spans.html"
    annotate_spans.annotate(annotated, "rules", blocks=blocks_dir)
    _run(annotated, "--html", page, "--num-passages", 4)
    assert capsys.readouterr().out.endswith(f"\n{page}: open it in a browser\n")
    shown = page.read_text()
    assert shown.count("<article>") == 4
    # Which spans are marked, test_page.py tells.
    assert "<mark " in shown


def test_a_page_of_something_else(blocks_dir, tmp_path):
    page = tmp_path / "spans.html"
    with pytest.raises(InputError, match="holds 'blocks', expected 'annotated"):
        _run(blocks_dir, "--html", page)
    assert not page.exists()


def test_a_directory_that_is_not_complete(tmp_path):
    (tmp_path / "metadata.json").write_text('{"kind": "blocks"}')
    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InputError, match="no COMPLETED"):
            inspection.inspect(str(directory))
