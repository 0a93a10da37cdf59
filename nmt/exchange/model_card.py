"""The card of a model that leaves: what its own files know of it, in the form of the hub.

Front matter and sections are those of https://huggingface.co/docs/hub/model-cards. What is not
known is left out: a model from elsewhere does not tell what it was trained on.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from nmt import __version__
from nmt.exchange import card_code, proof
from nmt.exchange.adapter import Adapter
from nmt.exchange.settings import UNNAMED
from nmt.modeldir import Trained
from nmt.text.bpe import Bpe
from nmt.text.languages import languages_of, short_code
from nmt.text.unigram import language_codes


class CardOptions(NamedTuple):
    """Statements of a card that no file of the model makes."""

    name: str
    license: str | None = None  # None: left out


def card(
    adapter: Adapter, certificate: Mapping[str, Any], options: CardOptions, name: str
) -> bytes:
    """The text of README.md for a model that was written for an engine, under a name.

    `certificate`: its certificate.
    """
    trained, code = adapter.trained, adapter.code(name)
    usage = card_code.markdown(code, trained) if code else adapter.usage(name)
    parts = [
        f"---\n{_front(adapter, options)}---\n",
        f"# {options.name}\n\n{_about(adapter)}\n",
        f"## Use\n\n{usage}\n",
        f"## Model\n\n{_table(_shape(trained))}\n",
    ]
    if rows := list(_training(trained)):
        parts.append(f"## Training\n\n{_table(rows)}\n")
    findings = "\n".join(f"- {sentence}" for sentence in proof.sentences(certificate))
    parts.append(f"## Compared with the model that was trained\n\n{findings}\n")
    return "\n".join(parts).encode(errors="replace")


def _front(adapter: Adapter, options: CardOptions) -> str:
    """The YAML that the hub reads."""
    languages = _languages(adapter.trained)
    values: dict[str, Any] = {
        "language": languages,
        "license": options.license,
        "library_name": adapter.on_hub,
        "pipeline_tag": "translation",
        "tags": ["translation", *adapter.trained.settings.encoding],
    }
    return OmegaConf.to_yaml(OmegaConf.create({k: v for k, v in values.items() if v}))


def _languages(trained: Trained) -> list[str]:
    """The code of the source, then those of the targets; none where one is unknown.

    A model that knows its targets as `>>fr<<` translates into the chosen one, or into all, and into
    that of its data if a corpus has no tag.
    """
    source, *targets = languages_of(trained.settings)
    if codes := [*language_codes(trained.source.vocabulary)]:
        chosen = trained.settings.decode.source_language
        corpora = getattr(trained.settings.data, "corpora", {}).values()
        if chosen or all(corpus.tag for corpus in corpora):
            targets = []
        targets += [short_code(code.strip("<>")) for code in ([chosen] if chosen else codes)]
    languages = [source, *dict.fromkeys(targets)]
    return [] if UNNAMED in languages else languages


def _about(adapter: Adapter) -> str:
    source, *targets = (f"`{code}`" for code in _languages(adapter.trained) or [""])
    pair = f" from {source} to {', '.join(targets)}" if targets else ""
    return f"A Transformer that translates{pair}, written for {adapter.title} by nmt {__version__}."


def _shape(trained: Trained) -> Iterator[tuple[str, str]]:
    """Sizes, encoding, segmentation."""
    shape = trained.settings.model
    yield "parameters", f"{sum(p.numel() for p in trained.model.parameters()):,}"
    yield "layers", f"{shape.encoder_layers} in the encoder, {shape.decoder_layers} in the decoder"
    yield "width", f"{shape.dim}, feed-forward {shape.feedforward_dim}, {shape.heads} heads"
    yield "norm, activation", f"{shape.norm}-norm, {shape.activation}"
    for name, values in trained.settings.encoding.items():
        yield "positional encoding", f"{name} {json.dumps(values, ensure_ascii=False)}"
    for name, side in (("source", trained.source), ("target", trained.target)):
        words = side.segmenter.tokenizer
        kind = "byte pair encoding" if isinstance(side.segmenter, Bpe) else "SentencePiece"
        text = f"{kind}; tokenizer {words.kind}, normalisation {words.normalize}"
        yield f"{name} pieces", f"{f'{len(side.vocabulary.to_json()):,}'}, {text}"


def _training(trained: Trained) -> Iterator[tuple[str, str]]:
    """Facts of the training; none for an imported model that was not trained further."""
    facts, settings = trained.facts, trained.settings
    if "step" not in facts:
        return
    optim, trainer = settings.optim, settings.trainer
    if trainer.init_from:
        yield "started from", trainer.init_from
    yield "corpus", settings.data.name
    for key, what in (("train_pairs", "training pairs"), ("dev_pairs", "development pairs")):
        if key in facts:
            yield what, f"{facts[key]:,}"
    if fingerprint := facts.get("fingerprint"):
        yield "fingerprint of the text", f"`{fingerprint}`"
    if (join := settings.data.join) > 1:
        yield "joined lines", f"up to {join}, {settings.data.join_share:g} of the examples"
    for side in ("source", "target"):
        if (longest := facts.get(f"longest_{side}")) is not None:
            yield f"longest {side}", f"{longest:,} pieces"
    if averaged := facts.get("averaged"):
        yield "mean of", f"{len(averaged)} models; the updates are those of the last"
    yield "updates", f"{facts['step']:,}"
    yield "tokens of an update", f"up to {trainer.batch_tokens * trainer.accumulate:,}"
    adam = "AdamW" if optim.weight_decay else "Adam"
    yield "optimiser", f"{adam}, {optim.kind}, learning rate {optim.lr:g}"
    yield "label smoothing, dropout", f"{optim.label_smoothing:g}, {settings.model.dropout:g}"
    yield "seed", str(settings.seed)
    if (perplexity := facts.get("dev_perplexity")) is not None:
        yield "development perplexity", f"{perplexity:.2f}"


def _table(rows: Iterable[tuple[str, str]]) -> str:
    cells = [[" ".join(cell.replace("|", "\\|").split()) for cell in row] for row in rows]
    heading = "| | |\n|:--|:--|"
    return "\n".join([heading, *(f"| {name} | {value} |" for name, value in cells)])
