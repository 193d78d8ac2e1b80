"""The reader: a score for every short span of a block."""

import keras
import numpy as np
from keras import ops

from realm_tf.models.bert_encoder import EncoderModel
from realm_tf.models.bert_encoder import make_initializer
from realm_tf.models.bert_encoder import make_inputs


@keras.saving.register_keras_serializable(package="realm_tf")
class Reader(EncoderModel):
    """BERT over join_BERT(question, block) with ORQA's span scorer.

        h_start, h_end = split(W h)
        score(s, e) = v . LayerNorm(ReLU(h_start[s] + h_end[e])) - none
        none = u . h[CLS] + c

    A score is the log-odds of a span against "none": that the block does not
    hold an answer. In a softmax beside the spans "none" has the score 0.

    Inputs as `BertEncoder`. The output is a float32 tensor
    `(batch_size, sequence_length, max_span_width)`, LayerNorm and scores
    computed in float32 under any dtype policy: entry `[i, w]` scores
    the span that begins at `i` and holds `w + 1` wordpieces. Spans that run
    over the end of the sequence get the score of a zero `h_end`: mask them.

    With `span_hidden_dim=0` it scores as a `BertForQuestionAnswering`; see
    `EndpointScorer`.

    Args:
        encoder: `BertEncoder`.
        span_hidden_dim: int. Width of `h_start` and `h_end`. Defaults to
            `256`. `0`: ends are scored by themselves, without the next two
            layers.
        max_span_width: int. Longest span, in wordpieces. Defaults to `10`.
        layer_norm_epsilon: float. Of the span scorer. Defaults to `1e-3`.
        reads_titles: bool. Whether the title of a block comes before its body,
            `[CLS] x [SEP] title [SEP] body [SEP]`, as in [Karpukhin et al.,
            2020](https://arxiv.org/abs/2004.04906); spans are the body's in any
            case. It can be set. Defaults to `False`, as the paper.
        max_joint_length: int. Wordpieces of all that is read of a question and
            a block; the end of a longer block is not. It can be set. Defaults
            to `None`: all.
        none_span: bool. Whether "none" is computed, a `Dense` layer `none` that
            begins as 0. Defaults to `False`: it is 0, as of older models.

    References:
        "None" is read off [CLS] as in [Devlin et al.,
        2019](https://arxiv.org/abs/1810.04805), section 4.3.
        [Lee et al., 2019](https://arxiv.org/abs/1906.00300), section 4.2.
        Original code: google-research/language,
        language/orqa/models/orqa_model.py (sizes and epsilon).
    """

    def __init__(
        self,
        encoder,
        span_hidden_dim=256,
        max_span_width=10,
        layer_norm_epsilon=1e-3,
        reads_titles=False,
        max_joint_length=None,
        none_span=False,
        **kwargs,
    ):
        inputs = make_inputs()
        # Nothing here reads the pooled [CLS].
        encoder.get_layer("pooled_dense").trainable = False
        sequence = encoder(inputs)["sequence_output"]
        scorer = EndpointScorer(max_span_width, name="span_scorer")
        if span_hidden_dim:
            scorer = SpanScorer(
                span_hidden_dim,
                max_span_width,
                layer_norm_epsilon,
                name="span_scorer",
            )
        logits = scorer(sequence)
        if none_span:
            none = keras.layers.Dense(
                1, kernel_initializer="zeros", dtype="float32", name="none"
            )
            # (b, 1) -> (b, 1, 1)
            logits = logits - none(sequence[:, 0])[:, None]
        config = {
            "encoder": encoder,
            "span_hidden_dim": span_hidden_dim,
            "max_span_width": max_span_width,
            "layer_norm_epsilon": layer_norm_epsilon,
            "reads_titles": reads_titles,
            "max_joint_length": max_joint_length,
            "none_span": none_span,
        }
        super().__init__(inputs, logits, config, **kwargs)

    @property
    def knows_none(self) -> bool:
        """Whether scores are against a "none" of its own, which is not just 0."""
        return self.none_span or not self.span_hidden_dim

    @property
    def is_trained(self) -> bool:
        """Whether training has changed the span scorer.

        Its LayerNorm begins as the identity, and each step of training moves
        that. Readers without one come from checkpoints of trained readers.
        """
        if not self.span_hidden_dim:
            return True
        layer_norm = self.get_layer("span_scorer").layer_norm
        gamma, beta = map(np.asarray, (layer_norm.gamma, layer_norm.beta))
        return bool((gamma != 1).any() or (beta != 0).any())


class SpanScorer(keras.layers.Layer):
    """Scores spans of 1 to `max_span_width` positions; see `Reader`."""

    def __init__(
        self, span_hidden_dim, max_span_width, layer_norm_epsilon, **kwargs
    ):
        # Weights are used as they are; `endpoints` has the policy of all.
        super().__init__(dtype="float32", **kwargs)
        self.span_hidden_dim = span_hidden_dim
        self.max_span_width = max_span_width
        self.endpoints = keras.layers.Dense(
            2 * span_hidden_dim,
            kernel_initializer=make_initializer(),
            name="endpoints",
        )
        self.layer_norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, dtype="float32", name="layer_norm"
        )
        self.score = keras.layers.Dense(
            1,
            kernel_initializer=make_initializer(),
            dtype="float32",
            name="score",
        )

    def build(self, sequence_shape):
        self.endpoints.build(sequence_shape)
        span_shape = (*sequence_shape[:-1], self.span_hidden_dim)
        self.layer_norm.build(span_shape)
        self.score.build(span_shape)
        self.built = True

    def call(self, sequence):
        # CPUs add bfloat16 slowly, and there are many widths.
        endpoints = ops.cast(self.endpoints(sequence), "float32")
        starts, ends = ops.split(endpoints, 2, axis=-1)
        batch_size, length = ops.shape(sequence)[:2]
        size = batch_size, length, self.span_hidden_dim
        padded = ops.pad(ends, [[0, 0], [0, self.max_span_width - 1], [0, 0]])
        # One width after the other: (b, l, w, s) at once would be ten times
        # the memory of the sequence itself.
        spans = (
            ops.relu(starts + ops.slice(padded, (0, width, 0), size))
            for width in range(self.max_span_width)
        )
        return ops.concatenate([self._score(each) for each in spans], axis=-1)

    def _score(self, spans):
        """Layer normalisation and score, without the normalised numbers.

            v . (g (x - mean) / deviation + b) + c
                = ((g v) . x - mean sum(g v)) / deviation + b . v + c

        Beside the spans, (b, l, s), and their squares, only numbers of (b, l, 2)
        are written.
        """
        norm = self.layer_norm
        # (s, 1)
        weights = norm.gamma[:, None] * self.score.kernel
        mean_weights = ops.full_like(weights, 1 / self.span_hidden_dim)
        means, products = ops.split(
            _product(spans, ops.concatenate([mean_weights, weights], axis=1)),
            2,
            axis=-1,
        )
        variances = ops.mean(ops.square(spans), axis=-1, keepdims=True)
        variances = ops.maximum(variances - ops.square(means), 0.0)
        return (products - means * ops.sum(weights)) * ops.rsqrt(
            variances + norm.epsilon
        ) + (ops.matmul(norm.beta, self.score.kernel) + self.score.bias)

    def compute_output_shape(self, sequence_shape):
        return (*sequence_shape[:-1], self.max_span_width)


class EndpointScorer(keras.layers.Layer):
    """Scores spans by their ends, against [CLS], which means "no answer".

        score(s, e) = start[s] + end[e] - (start[CLS] + end[CLS])

    A `Dense` layer of two outputs gives the logits `start` and `end` of each
    position, in float32. Spans that run over the end of the sequence have 0 for
    `end[e] - end[CLS]`.

    Args:
        max_span_width: int. See `Reader`.

    References:
        [Devlin et al., 2019](https://arxiv.org/abs/1810.04805), section 4.3.
    """

    def __init__(self, max_span_width, **kwargs):
        super().__init__(dtype="float32", **kwargs)
        self.max_span_width = max_span_width
        self.endpoints = keras.layers.Dense(
            2,
            kernel_initializer=make_initializer(),
            dtype="float32",
            name="endpoints",
        )

    def build(self, sequence_shape):
        self.endpoints.build(sequence_shape)
        self.built = True

    def call(self, sequence):
        logits = self.endpoints(sequence)
        # (b, l, 1)
        starts, ends = ops.split(logits - logits[:, :1], 2, axis=-1)
        size = ops.shape(ends)
        padded = ops.pad(ends, [[0, 0], [0, self.max_span_width - 1], [0, 0]])
        return starts + ops.concatenate(
            [
                ops.slice(padded, (0, width, 0), size)
                for width in range(self.max_span_width)
            ],
            axis=-1,
        )

    def compute_output_shape(self, sequence_shape):
        return (*sequence_shape[:-1], self.max_span_width)


def _product(x, weights):
    """x @ weights, as the one product of matrices that TensorFlow has fast."""
    rows = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), weights)
    return ops.reshape(rows, (*ops.shape(x)[:-1], weights.shape[-1]))
