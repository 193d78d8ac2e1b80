import os

import numpy as np
import pytest

from realm_tf.errors import InputError
from realm_tf.training.index_versions import IndexVersions


def _rows(value):
    return np.full((3, 2), value, "float32")


def test_two_states_have_their_versions(tmp_path):
    versions = IndexVersions(str(tmp_path / "index"))
    for step in (0, 500, 1000):
        versions.write(step, _rows(step))
        versions.keep(step)
        # The state is saved again before the next index.
        versions.keep(step)
    # A builder made it; no state names it.
    versions.write(1500, _rows(1500))
    versions.keep(1000)
    found = sorted(os.listdir(tmp_path / "index"))
    assert found == ["00000500.npy", "00001000.npy", "00001500.npy"]
    again = IndexVersions(str(tmp_path / "index"))
    read = again.read(500)
    np.testing.assert_array_equal(read, _rows(500))
    again.write(900, _rows(900))
    again.keep(900)
    # That of the state on the disk stays until one that names 900 is there.
    assert "00000500.npy" in os.listdir(tmp_path / "index")
    again.write(1400, _rows(1400))
    again.keep(1400)
    assert sorted(os.listdir(tmp_path / "index"))[0] == "00000900.npy"
    # Removed, but whoever searches it still has it.
    np.testing.assert_array_equal(read, _rows(500))


def test_torn_and_missing_versions_are_refused(tmp_path):
    versions = IndexVersions(str(tmp_path))
    versions.write(7, _rows(7))
    path = tmp_path / "00000007.npy"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(InputError, match="00000007.npy is damaged"):
        versions.read(7)
    with pytest.raises(InputError, match="00000008.npy is damaged"):
        versions.read(8)
