"""Reading reproductions.yaml: what is malformed is named."""

import pytest

from realm_tf.errors import InputError
from realm_tf.evaluation.reproductions import entries as reproductions


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"minutes": 0}, "key minutes: expected minutes, not 0"),
        ({"minutes": True}, "key minutes: expected minutes, not True"),
        ({"minute": 1}, "key minute: is unknown; there are commands"),
        ({"hardware": ""}, "key hardware: expected a text, not ''"),
        ({"needs": ["a GPU"]}, "key needs: expected a list of data_dir"),
        ({"needs": ["wheel"]}, "key needs: wheel belongs there if and only"),
        ({"commands": []}, "key commands: expected a list of commands"),
        ({"commands": ["rm -r x"]}, "must begin with `realm` or `python"),
        ({"commands": ["python -c pass"]}, "must begin with `realm` or"),
        ({"commands": ["realm 'x"]}, "No closing quotation"),
        ({"commands": ["realm x {home}"]}, "{home} is unknown; there are"),
        (
            {"commands": ["realm x {data_dir}"]},
            "key needs: data_dir belongs there if and only",
        ),
        ({"expect": []}, "key expect: expected a list of figures, not []"),
        ({"expect": [3]}, "figure 1: must be a mapping, not 3"),
    ],
)
def test_an_entry_that_is_malformed(project, make_entry, changes, complaint):
    """The file, the entry and the key are named."""
    _check(project(good=make_entry(), bad=make_entry(**changes)), complaint)


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"tolerance": -1}, "key tolerance: expected a number of at least"),
        ({"tolerance": "5 percent"}, "key tolerance: expected a number"),
        ({"tolerance": float("nan")}, "key tolerance: expected a number"),
        ({"values": {"x": "3"}}, "key values: expected a mapping of paths"),
        ({"values": {"x": float("inf")}}, "key values: expected a mapping"),
        ({"values": "a.{b,c}"}, "key values: 2 paths for the 1 numbers of 'It"),
        ({"published": {}}, "key published: expected a mapping of files"),
        ({"published": "README.md"}, "key published: expected a mapping"),
        ({"from": "../x.json"}, "key from: ../x.json is not below"),
        ({"divide_by": 0}, "key divide_by: expected a number other than 0"),
        ({"value": 3}, "key value: is unknown; there are figure"),
    ],
)
def test_a_figure_that_is_malformed(
    project, make_entry, make_figure, changes, complaint
):
    figures = [make_figure(), make_figure(**changes)]
    path = project(good=make_entry(), bad=make_entry(expect=figures))
    _check(path, f"figure 2, {complaint}")


def test_numbers_of_a_text():
    assert reproductions.numbers(
        "F1 0.887, recall@5 -0.25 to +0.19 (of 1,293 blocks, 14 %): BERT-2 5e-5 x1.5."
    ) == [0.887, -0.25, 0.19, 1293.0, 14.0, 0.14, 2.0, 5.0, 5.0]


def test_paths_of_a_quotes_numbers(project, make_entry, make_figure):
    """The numbers stand in the quote alone; paths are in their order."""
    figure = make_figure(
        published={"README.md": "| REALM | 39.2 (34.1) | -1.5 (1,000) |"},
        values="of.{nq,squad}.f1{,_interval.0}",
    )
    entries = reproductions.read_entries(
        project(good=make_entry(expect=[figure]))
    )
    found = [(each.path, each.value) for each in entries["good"].figures]
    assert found == [
        ("of.nq.f1", 39.2),
        ("of.nq.f1_interval.0", 34.1),
        ("of.squad.f1", -1.5),
        ("of.squad.f1_interval.0", 1000.0),
    ]


def test_a_key_that_is_missing(project, make_entry, make_figure):
    for key in make_entry():
        body = make_entry()
        del body[key]
        _check(project(bad=body), f"key {key}: is missing; expected ")
    for key in make_figure():
        figure = make_figure()
        del figure[key]
        path = project(bad=make_entry(expect=[figure]))
        _check(path, f"figure 1, key {key}: is missing; expected ")


def test_an_entry_that_cannot_fail(project, make_entry, make_figure):
    figures = [make_figure(tolerance="machine")]
    path = project(bad=make_entry(expect=figures))
    _check(path, "key expect: has no figure that can be judged")


def _check(path, complaint):
    with pytest.raises(InputError) as caught:
        reproductions.read_entries(path)
    assert str(caught.value).startswith(f"{path}, entry bad, ")
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("", "must map names to entries"),
        ("- a\n", "must map names to entries"),
        ("fast: [\n", "is no YAML: .*line 2"),
        ("fast: 1\nfast: 2\n", "the key 'fast' stands twice.*line 2"),
        ("? [a]\n: 1\n", "is no YAML: .*unhashable key"),
        ("Fast: 1\n", "entry Fast: must be a mapping, not 1"),
    ],
)
def test_a_file_that_is_malformed(tmp_path, text, complaint):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=f"(?s){path}.*{complaint}"):
        reproductions.read_entries(str(path))


def test_a_name_is_a_directory(project, make_entry):
    path = project(**{"../fast": make_entry()})
    with pytest.raises(InputError, match="a name has small letters"):
        reproductions.read_entries(path)
