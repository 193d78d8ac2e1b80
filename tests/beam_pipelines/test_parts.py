import os

import pytest

from realm_tf.artifacts.paths import writing
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import resumable


def test_a_part_without_blocks(tmp_path):
    writer = parts.PartWriter(str(tmp_path), (0, 0))
    writer.counts["dropped_redirect"] += 1
    writer.write()
    pages, counts = parts.read_pages(str(tmp_path), (0, 0))

    assert len(pages) == len(parts.read_blocks(str(tmp_path), (0, 0))) == 0
    assert counts == {"dropped_redirect": 1}


def test_what_a_failure_leaves_is_removed(tmp_path):
    with pytest.raises(RuntimeError), writing(f"{tmp_path}/part") as path:
        open(path, "wb").close()
        raise RuntimeError("stop")
    assert os.listdir(tmp_path) == []
    # Of a run that was killed.
    with writing(f"{tmp_path}/part") as path:
        open(path, "wb").close()
        resumable.clean(str(tmp_path))
        assert os.listdir(tmp_path) == []
        open(path, "wb").close()
    assert os.listdir(tmp_path) == ["part"]
