"""The names of `realm_tf` that a notebook uses."""

import pytest

import realm_tf


def test_every_public_name_is_there():
    for name in realm_tf.__all__:
        assert getattr(realm_tf, name) is not None, name
    assert set(realm_tf.__all__) <= set(dir(realm_tf))
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        realm_tf.frobnicate  # noqa: B018
