"""Directories as objects: opened once, what they hold, what they refuse."""

import json

import pytest

from realm_tf.artifacts import artifact
from realm_tf.artifacts import matching
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import Index
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.objects import open_any
from realm_tf.artifacts.question_files import Questions
from realm_tf.errors import InputError


@pytest.fixture
def reads(monkeypatch):
    """The directories whose metadata was read."""
    found = []
    read = artifact.read

    def count(directory, **kind):
        if isinstance(directory, str):
            found.append(directory)
        return read(directory, **kind)

    monkeypatch.setattr(artifact, "read", count)
    return found


def test_a_directory_is_opened_once_and_when_it_is_needed(blocks_dir, reads):
    blocks = Blocks(f"{blocks_dir}/")
    assert blocks.path == str(blocks) == blocks_dir
    assert not reads
    assert blocks.num_blocks == len(blocks) == 11
    assert blocks.metadata["num_blocks"] == 11
    assert blocks.fingerprint and blocks.counts["blocks"] == 11
    assert [block.block_id for block in blocks.read()] == list(range(11))
    assert blocks.records is blocks.records
    assert reads.count(blocks_dir) == 1


def test_what_has_not_been_made_has_a_name(tmp_path):
    blocks = Blocks(tmp_path / "blocks")
    assert repr(blocks) == f"Blocks('{tmp_path}/blocks', not made yet)"
    assert not blocks.is_complete
    with pytest.raises(InputError, match="blocks does not exist"):
        blocks.num_blocks.bit_length()
    with artifact.write(blocks.path, kind="blocks") as stage:
        stage.metadata.update(num_blocks=3, fingerprint="0123")
    assert repr(blocks) == (
        f"Blocks('{tmp_path}/blocks': 3 blocks, fingerprint 0123)"
    )


def test_equal_paths_of_one_kind_are_equal():
    assert Blocks("a") == Blocks("a/")
    assert Blocks("a") != Model("a")
    assert len({Blocks("a"), Blocks("a/"), Blocks("b"), Model("a")}) == 3
    blocks = Blocks("a")
    assert Blocks.of(blocks) is blocks
    assert Blocks.of("a") == blocks
    assert Blocks.of(None) is None


def test_any_directory_says_what_it_holds(
    blocks_dir, model_dir, embeddings_dir, brute_force_index_dir, tmp_path
):
    shown = {
        blocks_dir: "Blocks('{}': 11 blocks, fingerprint ",
        model_dir: "Model('{}': model, fingerprint ",
        embeddings_dir: "Embeddings('{}': 11 embeddings, fingerprint ",
        brute_force_index_dir: "Index('{}': brute_force index over 11 blocks, ",
    }
    for path, text in shown.items():
        assert repr(open_any(path)).startswith(text.format(path))
    with pytest.raises(
        InputError,
        match="is not complete: expected a directory with the marker",
    ):
        open_any(str(tmp_path))
    with artifact.write(str(tmp_path / "x"), kind="unheard-of"):
        pass
    with pytest.raises(InputError, match="'unheard-of', which this version"):
        open_any(str(tmp_path / "x"))


def test_questions_are_read_once(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"question": "who?", "answer": ["Ada"]}) + "\n")
    questions = Questions(path)
    assert len(questions) == 1 and len(questions.fingerprint) == 16
    path.unlink()
    assert [each.question for each in questions] == ["who?"]
    with pytest.raises(InputError, match="does not exist"):
        len(Questions(path).fingerprint)


def _copy(tmp_path, source, kind, **changes):
    output = str(tmp_path / kind)
    metadata = {**artifact.read(source), **changes}
    with artifact.write(
        output, kind=kind, parents=metadata["parents"]
    ) as stage:
        stage.metadata.update(metadata)
    return output


def test_what_does_not_match_is_refused(
    tmp_path, blocks_dir, model_dir, embeddings_dir, brute_force_index_dir
):
    blocks, model = Blocks(blocks_dir), Model(model_dir)
    matching.check_vocabulary(blocks, model)
    for made in (Index(brute_force_index_dir), Embeddings(embeddings_dir)):
        matching.check_index(made, blocks=blocks, model=model)
    index = Index(brute_force_index_dir)
    other = Blocks(
        _copy(tmp_path, blocks_dir, "blocks", fingerprint="f", tokenizer="t")
    )
    with pytest.raises(InputError, match="have different vocabularies"):
        matching.check_vocabulary(other, model)
    with pytest.raises(InputError, match=f"was not made from {other} "):
        matching.check_index(index, blocks=other, model=model)
    other = Model(_copy(tmp_path, model_dir, "model", block_tower="tower"))
    with pytest.raises(InputError, match=f"the block tower of {other} .*tower"):
        matching.check_index(index, blocks=blocks, model=other)
