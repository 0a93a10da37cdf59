"""Sockeye 3 in beam search, with random weights, through its own inference classes."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

import sockeye
import torch
from protocol import read_job, serve
from sockeye import beam_search, inference, transformer, vocab
from sockeye import constants as C
from sockeye.data_io import DataConfig, DataStatistics
from sockeye.encoder import EmbeddingConfig
from sockeye.model import ModelConfig, SockeyeModel, initialize_parameters, load_models

NEVER = -1e9  # output bias of what no translation may hold
FIRST = 4  # the first id of a word, as in the other models


def make(job: dict[str, Any], folder: Path) -> None:
    size, words, longest = job["model"], job["vocab"], job["longest"]
    torch.manual_seed(1)
    config = partial(
        transformer.TransformerConfig,
        model_size=size["dim"],
        attention_heads=size["heads"],
        feed_forward_num_hidden=size["feedforward_dim"],
        act_type=C.RELU,
        dropout_attention=size["attention_dropout"],
        dropout_act=size["feedforward_dropout"],
        dropout_prepost=size["dropout"],
        positional_embedding_type=C.FIXED_POSITIONAL_EMBEDDING,
        preprocess_sequence="n",
        postprocess_sequence="dr",
        depth_key_value=size["dim"],
        max_seq_len_source=longest,
        max_seq_len_target=longest,
    )
    statistics = DataStatistics(
        num_sents=1,
        num_discarded=0,
        num_tokens_source=longest,
        num_tokens_target=longest,
        num_unks_source=0,
        num_unks_target=0,
        max_observed_len_source=longest,
        max_observed_len_target=longest,
        size_vocab_source=words,
        size_vocab_target=words,
        length_ratio_mean=1.0,
        length_ratio_std=0.1,
        buckets=[(longest, longest)],
        num_sents_per_bucket=[1],
        average_len_target_per_bucket=[float(longest)],
    )
    data = DataConfig(statistics, longest, longest, 1, 1)
    model = SockeyeModel(
        ModelConfig(
            config_data=data,
            vocab_source_size=words,
            vocab_target_size=words,
            config_embed_source=EmbeddingConfig(words, size["dim"], size["dropout"]),
            config_embed_target=EmbeddingConfig(words, size["dim"], size["dropout"]),
            config_encoder=config(num_layers=size["encoder_layers"]),
            config_decoder=config(num_layers=size["decoder_layers"]),
            weight_tying_type=C.WEIGHT_TYING_NONE,
        )
    )
    model.apply(initialize_parameters)
    with torch.no_grad():
        model.output_layer.bias[:FIRST] = NEVER
    folder.mkdir(parents=True)
    model.save_config(str(folder))
    model.save_version(str(folder))
    model.save_parameters(str(folder / C.PARAMS_BEST_NAME))
    numbers = {word: i for i, word in enumerate(C.VOCAB_SYMBOLS)}
    numbers |= {f"w{i}": i for i in range(len(numbers), words)}
    vocab.save_source_vocabs([numbers], str(folder))
    vocab.save_target_vocabs([numbers], str(folder))


def load(job: dict[str, Any], folder: Path) -> inference.Translator:
    device = torch.device(job["device"])
    models, sources, targets = load_models(
        device, [str(folder)], dtype=job["precision"], inference_only=True
    )
    return inference.Translator(
        device=device,
        ensemble_mode="linear",
        scorer=beam_search.CandidateScorer(job["alpha"]),
        batch_size=job["options"]["sentences"],
        beam_size=job["beam"],
        beam_search_stop=C.BEAM_SEARCH_STOP_ALL,
        models=models,
        source_vocabs=sources,
        target_vocabs=targets,
        max_output_length=job["steps"],
    )


def main() -> None:
    logging.disable(logging.WARNING)
    job = read_job()
    folder = Path(job["converted"])
    if not folder.exists():
        make(job, folder)
    translator = load(job, folder)
    inputs = [
        inference.make_input_from_plain_string(i, " ".join(f"w{n}" for n in row[:-1]))
        for i, row in enumerate(job["sources"])
    ]

    def play() -> dict[str, Any]:
        with torch.inference_mode():
            translations = translator.translate(inputs, fill_up_batches=False)
        return {"units": sum(len(output.tokens) for output in translations)}

    serve(play, version=sockeye.__version__)


if __name__ == "__main__":
    main()
