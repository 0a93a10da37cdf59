"""What a run tells beside its scores: its size, its budget, how its training went."""

from nmt import build
from nmt.config import Settings


def parameters(settings: Settings, sizes: tuple[int, int]) -> tuple[int, int]:
    """Parameters of the encodings, and of the model with them, each counted once.

    `sizes`: of the source and target vocabularies.
    """
    model = build.outline(settings, *sizes)
    of_encodings = {p for site in model.sites.values() for p in site.parameters()}
    return sum(p.numel() for p in of_encodings), sum(p.numel() for p in model.parameters())


def shared_settings(settings: Settings, seeds: str) -> list[str]:
    """Corpus, size and budget that all runs have in common, from the settings of one."""
    model, trainer = settings.model, settings.trainer
    limits = [f"{trainer.max_steps:,} updates"] if trainer.max_steps else []
    limits += [f"{trainer.max_epochs:,} epochs"] if trainer.max_epochs else []
    return [
        f"Corpus {settings.data.name}; {model.encoder_layers}+{model.decoder_layers} layers of "
        f"{model.dim}, {model.heads} heads; {seeds}.",
        f"Training: {' or '.join(limits)} of {trainer.batch_tokens * trainer.accumulate:,} tokens, "
        f"learning rate {settings.optim.lr:g} ({settings.optim.kind}).",
    ]


def search_of(settings: Settings) -> str:
    """How a model searches, as its settings say."""
    decode = settings.decode
    chosen = f", the best of {decode.mbr} by expected chrF" if decode.mbr else ""
    if decode.method == "sample":
        return (
            f"samples (temperature {decode.temperature:g}, top_k {decode.top_k}, "
            f"top_p {decode.top_p:g}, seed {decode.seed}){chosen}"
        )
    if decode.beam_size == 1:
        return "greedy search"
    return f"beam search of {decode.beam_size}, alpha {decode.alpha:g}{chosen}"
