"""Teaches the package's reader, with PyTorch: a small reader, by a larger one.

    python benchmarks/teach_reader.py --data DIR --small MINILM --large MPNET --output DIR
    python benchmarks/teach_reader.py --data DIR --small READER.npz --output DIR

DIR has what `teaching_data.py` wrote. MINILM and MPNET are model.safetensors of
all-MiniLM-L6-v2 and all-mpnet-base-v2. The first command trains a large reader, then
the small one by it, on a GPU. The second goes on with a small reader on a CPU: its
embeddings and its two lowest layers stay as they are. Both write reader.npz, for
`package_reader.py`.

Readers score spans against "none":

    loss = joint + blocks
    joint: -log of the share of all right spans in the softmax over the spans of all
        blocks read and "none"; where no block holds an answer, of the share of "none"
    blocks: the mean of the same of each block alone. A block that holds an answer
        beside the gold one is left out: nobody knows if it answers.
    taught: 1/4 of these, and 3/4 of the cross entropy with the teacher's distributions

A quarter of the questions are asked over blocks without an answer. Blocks are read as
the package reads them: `[CLS] question [SEP] title [SEP] body [SEP]`, at most 320
wordpieces.
"""

import argparse
import math
import time

import numpy as np
import safetensors.numpy
import torch
import torch.nn.functional as F
from torch import nn

LENGTH, WIDTH = 320, 32
NONE_SHARE = 0.25
TEACHER_SHARE = 0.75
# Between the best spans of blocks that answer, and of others, of a reader that has
# not learned "none": 6.9 and -0.3 (medians of 48 questions).
NONE_OF_START = 3.3
# Questions of each part in an epoch: while a teacher teaches, and of the near misses.
TAUGHT = {
    "nq_open": 2616,
    "nq_open_extra": 8744,
    "squad_open": 13120,
    "webquestions": 3231,
    "curatedtrec": 1503,
    "organisations": 7831,
    "products": 9056,
    "near": 5312,
}
NEAR = {
    "nq_open": 1308,
    "nq_open_extra": 1700,
    "squad_open": 2800,
    "webquestions": 800,
    "curatedtrec": 336,
    "organisations": 3500,
    "products": 9056,
    "near": 4500,
}
CLS, SEP, UNK = 101, 102, 100


class Encoder(nn.Module):
    """BERT or MPNet over wordpieces without padding.

    Linear layers see the wordpieces of all rows, one after the other; attention
    alone is padded.
    """

    def __init__(self, kind, weights, dropout=0.1):
        super().__init__()
        self.kind = kind
        self.dropout = self.attention_dropout = dropout
        self.layers = 0
        names = {}
        for name, value in weights.items():
            tensor = torch.from_numpy(np.asarray(value, "float32"))
            names[name] = tensor
        self.width = names["embeddings.word_embeddings.weight"].shape[1]
        self.heads = 12
        self.params = nn.ParameterDict(
            {
                name.replace(".", "/"): nn.Parameter(value)
                for name, value in names.items()
            }
        )
        self.layers = 1 + max(
            int(name.split(".")[2])
            for name in names
            if name.startswith("encoder.layer.")
        )
        attention = ("attention.attn.q", "attention.attn.k", "attention.attn.v")
        out = "attention.attn.o", "attention.LayerNorm"
        if kind == "bert":
            attention = tuple(
                f"attention.self.{each}" for each in ("query", "key", "value")
            )
            out = "attention.output.dense", "attention.output.LayerNorm"
        self.names = (*attention, *out)
        self.epsilon = 1e-12 if kind == "bert" else 1e-5

    def freeze(self, *, num_layers):
        """Keeps the embeddings and the lowest layers as they are."""
        below = [f"encoder/layer/{number}/" for number in range(num_layers)]
        for name, value in self.params.items():
            if name.startswith(("embeddings", *below)):
                value.requires_grad_(False)

    def p(self, name):
        return self.params[name.replace(".", "/")]

    def linear(self, x, name):
        return F.linear(x, self.p(f"{name}.weight"), self.p(f"{name}.bias"))

    def norm(self, x, name):
        return F.layer_norm(
            x.float(),
            (self.width,),
            self.p(f"{name}.weight"),
            self.p(f"{name}.bias"),
            self.epsilon,
        )

    def drop(self, x):
        return F.dropout(x, self.dropout, self.training)

    def bias(self, mask):
        """What attention adds to its scores, (rows, 1 or heads, l, l)."""
        length = mask.shape[1]
        if self.kind == "bert":
            return mask[:, None, None].expand(-1, 1, length, -1)
        far = torch.arange(length, device=mask.device)
        buckets = mpnet_bucket(far[None] - far[:, None])
        bias = F.embedding(
            buckets, self.p("encoder.relative_attention_bias.weight")
        )
        bias = bias.detach().permute(2, 0, 1)[None]
        return bias.masked_fill(~mask[:, None, None], -math.inf)

    def forward(self, batch):
        """Hidden states of all wordpieces, (num_wordpieces, width)."""
        ids, places = batch[f"ids.{self.kind}"], batch["places"]
        rows, length = batch["shape"]
        x = F.embedding(ids, self.p("embeddings.word_embeddings.weight"))
        if self.kind == "bert":
            x = x + F.embedding(
                batch["positions"],
                self.p("embeddings.position_embeddings.weight"),
            )
            x = x + F.embedding(
                batch["segments"],
                self.p("embeddings.token_type_embeddings.weight"),
            )
        else:
            x = x + F.embedding(
                batch["positions"] + 2,
                self.p("embeddings.position_embeddings.weight"),
            )
        x = self.drop(self.norm(x, "embeddings.LayerNorm"))
        bias = self.bias(batch["mask"])
        for number in range(self.layers):
            at = f"encoder.layer.{number}"
            q, k, v, o, norm = (f"{at}.{each}" for each in self.names)
            weight = torch.cat([self.p(f"{each}.weight") for each in (q, k, v)])
            added = torch.cat([self.p(f"{each}.bias") for each in (q, k, v)])
            qkv = F.linear(x, weight, added)
            padded = qkv.new_zeros(rows * length, 3 * self.width)
            padded = padded.index_copy(0, places, qkv)
            padded = padded.view(rows, length, 3, self.heads, -1)
            y = qkv.new_zeros(rows, length, self.width)
            for group, longest in batch["groups"]:
                q, k, v = padded[group, :longest].permute(2, 0, 3, 1, 4)
                mask = bias[group][..., :longest, :longest]
                of_group = F.scaled_dot_product_attention(
                    q,
                    k,
                    v,
                    attn_mask=mask
                    if mask.dtype == torch.bool
                    else mask.to(q.dtype),
                    dropout_p=self.attention_dropout if self.training else 0.0,
                )
                of_group = of_group.transpose(1, 2).flatten(2)
                y = y.index_copy(
                    0, group, F.pad(of_group, (0, 0, 0, length - longest))
                )
            y = y.view(rows * length, self.width).index_select(0, places)
            x = self.norm(x + self.drop(self.linear(y, o)), norm)
            y = F.gelu(self.linear(x, f"{at}.intermediate.dense"))
            y = self.linear(y, f"{at}.output.dense")
            x = self.norm(x + self.drop(y), f"{at}.output.LayerNorm")
        return x


def mpnet_bucket(far, buckets=32, longest=128):
    """MPNet's bucket of a relative position, as T5's in both directions."""
    n = -far
    half = buckets // 2
    sign = (n < 0).long() * half
    n = n.abs()
    exact = half // 2
    large = (
        exact
        + (
            torch.log(n.float().clamp_min(1) / exact)
            / math.log(longest / exact)
            * (half - exact)
        ).long()
    )
    return sign + torch.where(n < exact, n, large.clamp_max(half - 1))


class Reader(nn.Module):
    """Span scores against "none"; see `realm_tf.models.reader.Reader`."""

    def __init__(self, kind, weights, hidden=256):
        super().__init__()
        below = "encoder."
        self.encoder = Encoder(
            kind,
            {
                name.removeprefix(below): value
                for name, value in weights.items()
                if name.startswith(below)
            },
        )
        own = {
            name: value
            for name, value in weights.items()
            if not name.startswith(below)
        }
        width = self.encoder.width
        self.start = nn.Linear(width, hidden)
        self.end = nn.Linear(width, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-5)
        self.out = nn.Linear(hidden, 1, bias=False)
        self.none = nn.Linear(width, 1)
        nn.init.zeros_(self.none.weight)
        nn.init.constant_(self.none.bias, NONE_OF_START if own else 0)
        own = {name: torch.from_numpy(value) for name, value in own.items()}
        self.load_state_dict(own, strict=False)

    def forward(self, batch):
        """(rows, body length, WIDTH): scores; -1e4 where no span is."""
        with torch.autocast(batch["ids.bert"].device.type, torch.bfloat16):
            x = self.encoder(batch)
            h = x.index_select(0, batch["body"])
            starts, ends = self.start(h), self.end(h)
            ends = F.pad(ends, (0, 0, 0, WIDTH - 1))
            # (n, w, hidden): each start with the ends that follow.
            of_width = [ends[w : w + len(h)] for w in range(WIDTH)]
            spans = F.relu(starts[:, None] + torch.stack(of_width, 1))
            with torch.autocast(x.device.type, enabled=False):
                scores = self.out(self.norm(spans.float())).squeeze(-1)
                none = self.none(
                    x.index_select(0, batch["cls"]).float()
                ).squeeze(-1)
        room = batch["room"]
        # A span ends in its own body.
        is_span = torch.arange(WIDTH, device=x.device) < room[:, None]
        scores = scores - none.index_select(0, batch["body_rows"])[:, None]
        scores = scores.masked_fill(~is_span, -1e4)
        rows, length = batch["shape"][0], batch["body_length"]
        padded = scores.new_full((rows * length, WIDTH), -1e4)
        return padded.index_copy(0, batch["body_places"], scores).view(
            rows, length, WIDTH
        )


class Questions(torch.utils.data.Dataset):
    """Batches of questions with the blocks that are read for them.

    Item n is the batch of step n: the same in every run.

    Args:
        path: path. Of teaching.npz.
        per_epoch: dict. Part to its questions in an epoch, some repeated if there
            are fewer.
        batch_size: int. Questions of a batch.
        num_read: int. Blocks of a question.
        num_groups: int. Groups of rows in attention, by length.
        num_steps: int.
    """

    def __init__(
        self, path, per_epoch, *, batch_size, num_read, num_groups, num_steps
    ):
        with np.load(path) as file:
            self._arrays = dict(file)
        self.batch_size, self._num_read = batch_size, num_read
        self._num_groups = num_groups
        self._num_steps = num_steps
        drawn = []
        for number, name in enumerate(self._arrays["parts"].tolist()):
            part, _, split = name.partition(".")
            if split == "train":
                of_part = np.flatnonzero(self._arrays["part"] == number)
                of_part = np.random.default_rng(0).permutation(of_part)
                drawn.append(np.resize(of_part, per_epoch[part]))
        self._questions = np.concatenate(drawn)
        self._spans = {}
        columns = ("question", "block", "start", "width")
        for question, *span in zip(
            *(self._arrays[f"span_{name}"].tolist() for name in columns),
            strict=True,
        ):
            self._spans.setdefault(question, {}).setdefault(span[0], []).append(
                span[1:]
            )

    def __len__(self):
        return self._num_steps

    def __getitem__(self, step):
        epoch, place = divmod(step, len(self._questions) // self.batch_size)
        order = np.random.default_rng(epoch).permutation(self._questions)
        asked = np.split(order, range(0, len(order), self.batch_size))[
            place + 1
        ]
        random = np.random.default_rng((0, step))
        return self._batch(
            [
                (question, block)
                for question in asked.tolist()
                for block in self._blocks(question, random)
            ]
        )

    def _blocks(self, question, random):
        """A block with an answer, if not left out, and others that were found."""
        num_read = self._num_read
        found = (self._arrays[name][question] for name in ("found", "dense"))
        found = [
            each for each in np.concatenate([*found]).tolist() if each >= 0
        ]
        found = list(dict.fromkeys(found))
        spans = self._spans.get(question, {})
        others = [each for each in found if each not in spans]
        chosen = []
        if spans and (random.random() >= NONE_SHARE or len(others) < num_read):
            gold = int(self._arrays["gold"][question])
            if gold < 0 or random.random() >= 0.7:
                gold = random.choice(list(spans))
            chosen = [int(gold)]
            others = [each for each in found if each != gold]
        near = random.permutation(others[:6])[: min(2, num_read - len(chosen))]
        rest = [each for each in others if each not in near]
        missing = num_read - len(chosen) - len(near)
        chosen += [*near.tolist(), *random.permutation(rest)[:missing].tolist()]
        # A small organisation has few blocks.
        chosen += chosen[-1:] * (num_read - len(chosen))
        return random.permutation(chosen).tolist()

    def _row(self, question, block):
        """Wordpieces; where the second segment and the body begin, its length."""
        head = [[CLS], self._pieces("question", question), [SEP]]
        second = len(head[1]) + 2
        head += [self._pieces("title", block), [SEP]]
        first = second + len(head[3]) + 1
        body = self._pieces("body", block)[: LENGTH - first - 1]
        return np.concatenate([*head, body, [SEP]]), second, first, len(body)

    def _pieces(self, name, number):
        first, last = self._arrays[f"{name}_offsets"][number : number + 2]
        return self._arrays[name][first:last].astype("int64")

    def _batch(self, pairs):
        """Tensors of rows, one after the other; see `Encoder` and `Reader`."""
        rows, second, firsts, bodies = zip(
            *(self._row(*pair) for pair in pairs), strict=True
        )
        lengths = np.array([len(each) for each in rows])
        length = int(-(-lengths.max() // 8) * 8)
        ids, row, position, first_of = _flat(rows, lengths)
        bodies = np.array(bodies)
        _, body_row, in_body, _ = _flat(None, bodies)
        longest = int(bodies.max())
        # MPNet's vocabulary is BERT's after four other wordpieces.
        mpnet = ids + 4
        for bert_id, mpnet_id in ((CLS, 0), (SEP, 2), (UNK, 3)):
            mpnet[ids == bert_id] = mpnet_id
        right, known = [], []
        for number, (question, block) in enumerate(pairs):
            spans = self._spans.get(question, {}).get(block, ())
            known.append(not spans or block == self._arrays["gold"][question])
            right += [
                (number * longest + start) * WIDTH + width
                for start, width in spans
                if start + width < bodies[number]
            ]
        arrays = {
            "ids.bert": ids,
            "ids.mpnet": mpnet,
            "positions": position,
            "segments": (position >= np.array(second)[row]).astype("int64"),
            "places": row * length + position,
            "mask": np.arange(length) < lengths[:, None],
            "cls": first_of,
            "body": (first_of + np.array(firsts))[body_row] + in_body,
            "body_rows": body_row,
            "body_places": body_row * longest + in_body,
            "room": bodies[body_row] - in_body,
            "right": np.array(right, "int64"),
            "known": np.array(known),
        }
        order = np.argsort(lengths, kind="stable")
        groups = np.array_split(order, self._num_groups)
        return {
            **{name: torch.from_numpy(each) for name, each in arrays.items()},
            "groups": [
                (torch.from_numpy(each), int(-(-lengths[each].max() // 8) * 8))
                for each in groups
            ],
            "shape": (len(rows), length),
            "body_length": longest,
        }


def _flat(rows, lengths):
    """Rows one after the other: values, row, place in it, first of each row."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    first = np.cumsum(lengths) - lengths
    values = None if rows is None else np.concatenate(rows)
    return values, row, np.arange(len(row)) - first[row], first


def with_none(scores):
    """(n, m) -> (n, m + 1), "none" of score 0 first."""
    return F.pad(scores, (1, 0), value=0.0)


def answer_loss(scores, right, known, num_questions):
    """Joint and block losses of right spans or "none", each a mean."""

    def loss(flat, is_right):
        all_of = torch.logsumexp(with_none(flat), 1)
        has = is_right.any(1)
        of_right = torch.logsumexp(flat.masked_fill(~is_right, -1e4), 1)
        return all_of - torch.where(has, of_right, 0.0)

    flat = scores.flatten(1)
    is_right = torch.zeros_like(flat, dtype=torch.bool)
    is_right.view(-1)[right] = True
    joint = loss(
        flat.view(num_questions, -1), is_right.view(num_questions, -1)
    ).mean()
    of_blocks = loss(flat, is_right)
    return joint, (of_blocks * known).sum() / known.sum().clamp_min(1)


def taught_loss(scores, teacher, num_questions):
    """Cross entropy with the teacher's distributions, joint and of blocks."""

    def loss(ours, theirs):
        p = with_none(theirs).softmax(1)
        return -(p * with_none(ours).log_softmax(1)).sum(1).mean()

    ours, theirs = scores.flatten(1), teacher.flatten(1)
    joint = loss(ours.view(num_questions, -1), theirs.view(num_questions, -1))
    return joint, loss(ours, theirs)


def train(reader, questions, *, rate, device, teacher=None):
    """Trains for as many steps as there are batches."""
    learned = [each for each in reader.parameters() if each.requires_grad]
    none = list(reader.none.parameters())
    rest = [each for each in learned if all(each is not n for n in none)]
    groups = [
        {"params": [each for each in rest if each.ndim > 1]},
        {"params": [each for each in rest if each.ndim < 2], "weight_decay": 0},
        # It begins with nothing.
        {"params": none, "weight_decay": 0, "lr": 25 * rate},
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=0.01)
    num_steps = len(questions)
    warm = max(1, num_steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(1, (step + 1) / warm) * (1 - step / num_steps),
    )
    loader = torch.utils.data.DataLoader(
        questions, batch_size=None, num_workers=14 if device == "cuda" else 0
    )
    started, told = time.monotonic(), []
    reader.train()
    for step, arrays in enumerate(loader, 1):
        batch = _to(device, arrays)
        scores = reader(batch)
        of_answers = answer_loss(
            scores, batch["right"], batch["known"], questions.batch_size
        )
        loss = sum(of_answers)
        if teacher is not None:
            with torch.no_grad():
                of_teacher = teacher(batch)
            taught = sum(taught_loss(scores, of_teacher, questions.batch_size))
            loss = (1 - TEACHER_SHARE) * loss + TEACHER_SHARE * taught
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(rest, 1.0)
        optimizer.step()
        schedule.step()
        told.append(torch.stack(of_answers).detach())
        if step % 100 == 0 or step == num_steps:
            joint, blocks = torch.stack(told).mean(0).tolist()
            seconds = time.monotonic() - started
            print(
                f"{step} {joint:.3f} {blocks:.3f} {seconds:.0f} s", flush=True
            )
            told = []


def _to(device, value):
    if isinstance(value, dict):
        return {name: _to(device, each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to(device, each) for each in value]
    return value.to(device) if isinstance(value, torch.Tensor) else value


def read_weights(path):
    """Name to array, of a safetensors file or of `save`."""
    if path.endswith(".npz"):
        with np.load(path) as file:
            return dict(file)
    arrays = safetensors.numpy.load_file(path)
    return {
        f"encoder.{name}": each
        for name, each in arrays.items()
        if "pooler" not in name and "position_ids" not in name
    }


def save(reader, path):
    """Writes a reader; names as of transformers below `encoder.`."""
    np.savez(
        path,
        **{
            name.replace("params.", "").replace("/", "."): value.cpu().numpy()
            for name, value in reader.state_dict().items()
        },
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--small", required=True)
    parser.add_argument("--large")
    parser.add_argument("--output", required=True)
    parser.add_argument("--num-steps", type=int, required=True)
    parser.add_argument("--num-teacher-steps", type=int)
    given = parser.parse_args()
    torch.manual_seed(0)
    on_gpu = given.large is not None
    device = "cuda" if on_gpu else "cpu"
    sizes = {"batch_size": 8, "num_read": 3, "num_groups": 4}
    if on_gpu:
        sizes = {"batch_size": 64, "num_read": 4, "num_groups": 1}

    def questions(num_steps):
        return Questions(
            f"{given.data}/teaching.npz",
            TAUGHT if on_gpu else NEAR,
            num_steps=num_steps,
            **sizes,
        )

    teacher = None
    if on_gpu:
        teacher = Reader("mpnet", read_weights(given.large)).to(device)
        steps = questions(given.num_teacher_steps)
        train(teacher, steps, rate=5e-5, device=device)
        teacher.eval()
        save(teacher, f"{given.output}/teacher.npz")
    small = Reader("bert", read_weights(given.small)).to(device)
    if not on_gpu:
        small.encoder.freeze(num_layers=2)
        # To draw it takes a third of a step there.
        small.encoder.attention_dropout = 0.0
    train(
        small,
        questions(given.num_steps),
        rate=8e-5 if on_gpu else 4e-5,
        device=device,
        teacher=teacher,
    )
    save(small, f"{given.output}/reader.npz")


if __name__ == "__main__":
    main()
