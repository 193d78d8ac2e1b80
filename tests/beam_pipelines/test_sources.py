import bz2

import pytest

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
    assert found == [sources.Source(0, dump, MEDIAWIKI, index)]
    assert sources.find([f"{tmp_path}/*"], JSONL)[0].index is None
    with pytest.raises(InputError, match="names only the index of a dump"):
        sources.find([index])


def test_the_index_that_the_user_names(tmp_path):
    dump = write(tmp_path / "dump.xml.bz2", 1)
    index = write(tmp_path / "pages.txt", 1)

    other = write(tmp_path / "other.xml.bz2", 1)
    assert sources.find([dump], MEDIAWIKI, index)[0].index == index
    for paths, format in (([dump, other], MEDIAWIKI), ([dump], JSONL)):
        with pytest.raises(InputError, match="belongs to a single MediaWiki"):
            sources.find(paths, format, index)
    with pytest.raises(InputError, match="--multistream-index .*none does not"):
        sources.find([dump], MEDIAWIKI, str(tmp_path / "none"))


def test_a_dump_with_an_index_becomes_ranges(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "PAGES_PER_PART", 2)
    pieces = [bz2.compress(text) for text in (b"<mediawiki>", b"1", b"2", b"3")]
    dump = tmp_path / "dump.bz2"
    dump.write_bytes(b"".join(pieces))
    starts = [sum(map(len, pieces[:n])) for n in (1, 2, 3, 4)]
    index = tmp_path / "index.txt"
    index.write_text(f"{starts[0]}:1:A\n{starts[1]}:2:B\n{starts[2]}:3:C: D\n")
    inputs = [sources.Source(0, str(dump), MEDIAWIKI, str(index))]
    found = sources.make_sources(inputs, 1)

    assert shares(found) == [(0, 1, 0), (0, 1, 1)]
    assert [(s.streams.start, s.streams.limit) for s in found] == [
        (starts[0], starts[2]),
        (starts[2], starts[3]),
    ]
    assert [s.streams.first_number for s in found] == [1, 3]
