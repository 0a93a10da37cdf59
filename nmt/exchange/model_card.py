"""The card of an exported model: code that translates with it, its limits, what the proof found.

Its front matter is that of https://huggingface.co/docs/hub/model-cards.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from nmt import __version__
from nmt.exchange import card_code, proof
from nmt.exchange.adapter import Adapter
from nmt.exchange.settings import UNNAMED
from nmt.modeldir import Trained
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
    findings = "\n".join(f"- {sentence}" for sentence in proof.sentences(certificate))
    parts = [
        f"---\n{_front(adapter, options)}---\n",
        f"# {options.name}\n\n{_about(adapter)}\n",
        f"## Use\n\n{usage}\n",
        f"## Compared with the model that was trained\n\n{findings}\n",
    ]
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
