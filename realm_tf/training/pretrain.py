"""Pre-training as a function; see `operations.pretrain`."""

from realm_tf.operations.pretrain import Pretrain


def pretrain(model, blocks, corpus, output, *, save_every_steps=None, **given):
    """`Pretrain.run`; returns the metrics of each epoch."""
    names = ("recipe", "index", "tensorboard", "beam_options")
    fields = {k: v for k, v in given.items() if k in names}
    fit = {k: v for k, v in given.items() if k not in names}
    made = Pretrain(
        model=model, blocks=blocks, corpus=corpus, output=output, **fields
    ).run(every_steps=save_every_steps, **fit)
    return made.metadata.get("history") or made.metadata["masked_lm_history"]
