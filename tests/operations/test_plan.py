import json
import shutil

import pytest

from realm_tf import cli
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.operations.plan import Plan


def test_what_fits_is_told(capsys):
    assert cli.main(["plan", "pretrain", "--num-devices", "16"]) == 1
    *_, told = capsys.readouterr().out.splitlines()
    start, _, changes = told.partition("What fits (")
    assert start.startswith("It does not fit: ")
    size, _, changes = changes.partition(" GB): ")
    words = changes.replace("--set ", "").split()
    assert sorted(words) == [
        "batch_size=256",
        "gradient_accumulation_steps=2",
        "num_steps=400000",
        "refresh_every=1000",
    ]
    again = Plan(what="pretrain", num_devices=16, set=words)
    need = again.run()
    assert again.status(need) == 0
    # As many examples, for as many changes of the weights.
    assert need.flop * need.num_steps == pytest.approx(
        Plan(what="pretrain").run().flop * 200_000
    )
    assert f"{need.device_bytes / 1e9:,.1f}" == size


def test_the_batch_of_the_inverse_cloze_task_is_not_cut():
    plan = Plan(what="ict", num_devices=64, device="tpu-v3-core")
    need = plan.run()
    assert plan.status(need) == 1
    assert plan.report(need).endswith("--set gradient_checkpointing=True")


def test_nothing_fits():
    plan = Plan(what="finetune", device="tpu-v5e")
    assert "Nor with one example" in plan.report(plan.run())


@pytest.mark.parametrize("what", ["ict", "pretrain", "finetune", "embed"])
def test_sizes_of_a_model_and_its_blocks(what, model_dir, blocks_dir):
    given = Plan(what=what, model=model_dir, blocks=blocks_dir)
    told = given.report(given.run())
    assert f", {given.blocks.num_blocks:,} blocks, 1 x h100" in told
    paper = Plan(what=what, num_blocks=given.blocks.num_blocks)
    small, large = given.run(), paper.run()
    assert small.memory["weights"] < large.memory["weights"] / 100
    assert small.flop < large.flop / 100


def test_two_towers_are_counted_twice(model_dir, tmp_path):
    config = Model(model_dir).config
    assert config["share_embedders"]
    two = tmp_path / "two"
    shutil.copytree(model_dir, two)
    path = two / "config.json"
    path.write_text(json.dumps({**config, "share_embedders": False}))
    one, more = (
        Plan(what="ict", model=each, num_blocks=9).run().memory["AdamW"]
        for each in (model_dir, two)
    )
    assert more == 2 * one


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_devices": 7}, "7 devices share each batch: .* 512"),
        ({"recipe": "huge"}, "--recipe must be one of paper, wiki-small"),
        ({"set": ["steps=3"]}, "--set steps=3: expected NAME=VALUE"),
        ({"share_of_peak": 0.0}, "above 0 and at most 1"),
        ({"what": "embed", "recipe": "paper"}, "has no recipe"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(InputError, match=message):
        Plan(**{"what": "pretrain", **arguments}).run()
