import dataclasses
import json
import shutil

import pytest

from realm_tf import cli
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.export import footprint
from realm_tf.operations.plan import Plan
from realm_tf.training.footprint import Sizes


def test_a_training_that_does_not_fit(capsys):
    assert cli.main(["plan", "pretrain", "--num-devices", "16"]) == 1
    *_, told = capsys.readouterr().out.splitlines()
    assert told.startswith("It does not fit: ")
    assert "GB of 72.0; add --set gradient_checkpointing=true" in told
    # As many examples, for as many changes of the weights.
    changes = ["batch_size=256", "gradient_accumulation_steps=2"]
    changes += ["num_steps=400000", "refresh_every=1000"]
    plan = Plan(what="pretrain", num_devices=16, set=changes)
    need = plan.run()
    assert plan.status(need) == 0 and "It does not" not in plan.report(need)
    assert need.flop * need.num_steps == pytest.approx(
        Plan(what="pretrain").run().flop * 200_000
    )


def test_sizes_of_a_model(model_dir):
    given = Plan(what="pretrain", model=model_dir, num_blocks=12)
    assert ", 12 blocks, 1 x h100" in given.report(given.run())
    paper = dataclasses.replace(given, model=None)
    small, large = given.run(), paper.run()
    assert small.memory["weights"] < large.memory["weights"] / 100
    assert small.flop < large.flop / 100


@pytest.mark.parametrize("what, least", [("index", 16), ("export", 70)])
def test_a_machine_that_is_too_small(what, least):
    for host_memory, status in ((least, 1), (2 * least, 0)):
        plan = Plan(what=what, host_memory=host_memory)
        need = plan.run()
        assert plan.status(need) == status
        told = plan.report(need)
        assert f"a machine of {host_memory:g} GB" in told
        assert told.endswith("with more memory.") == bool(status)


@pytest.mark.parametrize(
    "kind, num_blocks, embedding_dim, gigabytes",
    [
        # docs/measurements/corpus.md
        ("brute_force", 3_000_000, 128, 0.4),
        ("ivf", 3_000_000, 128, 2.1),
        ("scann", 3_000_000, 128, 4.5),
        ("ivf", 1_000_000, 384, 2.1),
        ("scann", 1_000_000, 384, 4.9),
    ],
)
def test_indices_had_as_much(kind, num_blocks, embedding_dim, gigabytes):
    need = footprint.index(num_blocks, embedding_dim, kind)
    assert need.device_bytes / 1e9 == pytest.approx(
        gigabytes, rel=0.12, abs=0.11
    )


@pytest.mark.parametrize(
    "kind, memory, disk",
    [
        # docs/measurements/corpus.md: 400,000 passages of 115.7 wordpieces.
        ("brute_force", 1.60, 1.254),
        ("ivf", 2.24, 1.261),
        ("scann", 2.24, 1.334),
    ],
)
def test_exports_had_as_much(kind, memory, disk):
    minilm = Sizes(
        num_layers=6,
        hidden_dim=384,
        num_heads=12,
        intermediate_dim=1536,
        embedding_dim=384,
        value_bytes=2,
    )
    need = footprint.export(minilm, 400_000, kind=kind, block_length=115.7)
    assert need.device_bytes / 1e9 == pytest.approx(memory, rel=0.05)
    assert sum(need.disk.values()) / 1e9 == pytest.approx(disk, rel=0.05)


def test_two_towers_are_counted_twice(model_dir, tmp_path):
    config = Model(model_dir).config
    assert config["share_embedders"]
    two = tmp_path / "two"
    shutil.copytree(model_dir, two)
    path = two / "config.json"
    path.write_text(json.dumps({**config, "share_embedders": False}))
    one, more = (
        Plan(what="pretrain", model=each, num_blocks=9)
        for each in (model_dir, two)
    )
    tower = 2 * 4 * one._sizes().tower_weights
    assert more.run().memory["AdamW"] == one.run().memory["AdamW"] + tower


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_devices": 7}, "7 devices share each batch: .* 512"),
        ({"recipe": "huge"}, "--recipe must be one of paper, wiki-small"),
        ({"set": ["steps=3"]}, "--set steps=3: expected NAME=VALUE"),
        (
            {"what": "index", "set": ["seed=1"]},
            "--set is not for `realm plan index`",
        ),
        (
            {"what": "index", "host_memory": 0.0},
            "--host-memory 0.0: expected 1",
        ),
        (
            {"host_memory": 1.0},
            "--host-memory is not for `realm plan pretrain`",
        ),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(InputError, match=message):
        Plan(**{"what": "pretrain", **arguments}).run()
