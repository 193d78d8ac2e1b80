import pytest

from realm_tf.articles import readers
from realm_tf.beam_pipelines import sources
from realm_tf.errors import InputError

MEDIAWIKI, JSONL = readers.MEDIAWIKI, "jsonl"


def write(path, size):
    path.write_bytes(b"x" * size)
    return str(path)


def shares(found):
    return [(s.source.file_number, s.stride, s.remainder) for s in found]


def test_files_are_shared_by_their_size(tmp_path):
    big = write(tmp_path / "big", 900)
    small = write(tmp_path / "small", 60)
    other = write(tmp_path / "other", 40)

    def make(paths, num_workers):
        inputs = [
            sources.Source(number, path, JSONL)
            for number, path in enumerate(paths)
        ]
        return shares(sources.make_shares(inputs, num_workers, "parts"))

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
