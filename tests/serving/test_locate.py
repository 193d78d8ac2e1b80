import socket

import pytest

from realm_tf.errors import InputError
from realm_tf.serving import locate


def make_version(directory):
    directory.mkdir(parents=True)
    (directory / "saved_model.pb").write_bytes(b"")


def test_the_highest_complete_version_is_found(tmp_path):
    for name in ("2", "10", "tmp-11", "12.partial"):
        make_version(tmp_path / name)
    (tmp_path / "13").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    assert locate.find_version(f"{tmp_path}/") == (f"{tmp_path}/10", 10)


def test_a_version_directory_is_found(tmp_path):
    make_version(tmp_path / "4")
    make_version(tmp_path / "mine")
    assert locate.find_version(tmp_path / "4") == (f"{tmp_path}/4", 4)
    assert locate.find_version(tmp_path / "mine") == (f"{tmp_path}/mine", 1)


def test_what_is_no_saved_model_is_refused(tmp_path):
    with pytest.raises(InputError, match="missing does not exist"):
        locate.find_version(tmp_path / "missing")
    with pytest.raises(InputError, match="holds no SavedModel"):
        locate.find_version(tmp_path)
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(InputError, match="holds no SavedModel"):
        locate.find_version(file)


def test_a_taken_port_is_refused():
    with socket.socket() as other:
        # Even a port that its owner is ready to share.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=f"127.0.0.1 port {port} .*in use"):
            locate.check_port("127.0.0.1", port)
    locate.check_port("127.0.0.1", port)
    locate.check_port("127.0.0.1", 0)


def test_a_foreign_host_or_number_is_refused():
    with pytest.raises(InputError, match="Cannot listen on 192.0.2.1 port 0"):
        locate.check_port("192.0.2.1", 0)
    with pytest.raises(InputError, match="not between 0 and 65535"):
        locate.check_port("127.0.0.1", 70000)
