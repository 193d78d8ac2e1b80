"""What packed blocks and packed passages have in common."""

import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

from realm_tf.artifacts import artifact
from realm_tf.artifacts.packed_blocks import PackedBlocks
from realm_tf.artifacts.packed_blocks import pack_blocks
from realm_tf.data.packed_passages import PackedPassages
from realm_tf.data.packed_passages import pack_passages
from realm_tf.errors import InputError

CLASSES = {"blocks": PackedBlocks, "passages": PackedPassages}


@pytest.fixture(params=CLASSES)
def kind(request):
    return request.param


@pytest.fixture
def pack(tmp_path, kind, blocks_dir, mark_passage, write_annotated, letters):
    """Packs the same again, into a directory of another name."""
    passages = [mark_passage(f"<City> {n}.", block_id=n) for n in range(9)]
    annotated = write_annotated(tmp_path / "annotated", passages)

    def make(name):
        output = str(tmp_path / name)
        if kind == "blocks":
            pack_blocks(blocks_dir, output)
        else:
            pack_passages(annotated, letters, output)
        return output

    return make


def test_the_same_input_gives_the_same_bytes(pack):
    packed, again = pack("packed"), pack("again")
    for name in os.listdir(packed):
        if name != artifact.METADATA:
            one = pathlib.Path(packed, name).read_bytes()
            assert one == pathlib.Path(again, name).read_bytes(), name
    one, two = (artifact.read(each)["fingerprint"] for each in (packed, again))
    assert one == two


def test_a_pickled_one_opens_the_directory_again(kind, pack):
    found = CLASSES[kind](pack("packed"))
    content = pickle.dumps(found)
    assert len(content) < 1000
    one, two = vars(found[3]), vars(pickle.loads(content)[3])
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name], err_msg=name)
    with pytest.raises(IndexError):
        found[len(found)]
    with pytest.raises(IndexError):
        found[-1]


def test_damage_is_noticed(kind, pack):
    packed = pack("packed")
    path = pathlib.Path(packed, "token_ids.npy")
    content = path.read_bytes()
    path.write_bytes(content[:-2])
    with pytest.raises(InputError, match="is damaged"):
        CLASSES[kind](packed)
    np.save(path, np.zeros(5, "uint16"))
    with pytest.raises(InputError, match="its files disagree"):
        CLASSES[kind](packed)
    np.save(path, np.zeros((5, 2), "uint16"))
    with pytest.raises(InputError, match="has the shape"):
        CLASSES[kind](packed)
    path.unlink()
    with pytest.raises(InputError, match="is damaged .*token_ids.npy"):
        CLASSES[kind](packed)


def test_reading_takes_numpy_alone(kind, pack):
    reader = {
        "blocks": "from realm_tf.data.inverse_cloze import IctExamples as E",
        "passages": "from realm_tf.data.masked_queries "
        "import PretrainingExamples as E",
    }
    name = CLASSES[kind].__name__
    code = (
        "import sys\n"
        f"{reader[kind]}\n"
        f"from {CLASSES[kind].__module__} import {name}\n"
        f"next(E({name}({pack('packed')!r}), batch_size=2).batches())\n"
        "print([n for n in ('tensorflow', 'tokenizers', 'keras')"
        " if n in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
