import bz2

import pytest

from realm_tf.articles import multistream
from realm_tf.articles import readers
from realm_tf.beam_pipelines import sources
from realm_tf.errors import InputError

MEDIAWIKI, JSONL = readers.MEDIAWIKI, "jsonl"


def write(path, size):
    path.write_bytes(b"x" * size)
    return str(path)


def shares(found):
    return [(s.file_number, s.stride, s.remainder) for s in found]


def test_files_are_shared_by_their_size(tmp_path):
    big = write(tmp_path / "big", 900)
    small = write(tmp_path / "small", 60)
    other = write(tmp_path / "other", 40)

    def make(paths, num_workers):
        inputs = [
            sources.Source(number, path, JSONL)
            for number, path in enumerate(paths)
        ]
        return shares(sources.make_sources(inputs, num_workers))

    assert make([big], 1) == [(0, 1, 0)]
    assert make([big], 3) == [(0, 3, 0), (0, 3, 1), (0, 3, 2)]
    assert make([big, small, other], 2) == [
        (0, 2, 0),
        (0, 2, 1),
        (1, 1, 0),
        (2, 1, 0),
    ]
    assert make([small, other], 2) == [(0, 1, 0), (1, 1, 0)]
    assert make([write(tmp_path / "empty", 0)], 2) == [(0, 1, 0)]


def test_inputs_leave_the_indices_of_dumps_out(tmp_path):
    dump = write(tmp_path / "w-multistream.xml.bz2", 1)
    index = write(tmp_path / "w-multistream-index.txt.bz2", 1)

    found = sources.find([f"{tmp_path}/*"], MEDIAWIKI)
    assert found == [sources.Source(0, dump, MEDIAWIKI)]
    with pytest.raises(InputError, match="names only the index of a dump"):
        sources.find([index])


def test_a_multistream_dump_becomes_ranges(tmp_path, monkeypatch):
    monkeypatch.setattr(multistream, "RANGE_BYTES", 60)
    dump = tmp_path / "dump.bz2"
    dump.write_bytes(bz2.compress(b"<mediawiki>") + bz2.compress(b"1") * 2)
    assert 120 < dump.stat().st_size < 180
    found = sources.make_sources([sources.Source(0, str(dump), MEDIAWIKI)], 1)

    assert shares(found) == [(0, 1, 0), (0, 1, 1), (0, 1, 2)]
    ranges = [each.byte_range for each in found]
    assert ranges == [(0, 60), (60, 120), (120, 180)]
