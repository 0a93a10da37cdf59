"""The worker that says what a training step consists of: shares of its time, by kind of work."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from torch.profiler import ProfilerActivity, profile

from scripts.bench.train_worker import HeldTrainer, main

KINDS = {  # names of operations contain one of these; the first kind that fits has it
    "optimiser": ("adam", "_foreach_", "linalg_vector_norm", "lerp", "addcdiv"),
    "dropout": ("dropout", "bernoulli", "random_"),
    "norms": ("layer_norm",),
    "embedding": ("embedding",),
    "attention": ("bmm", "baddbmm", "softmax", "masked_fill", "scaled_dot_product", "flash"),
    "linear layers": ("addmm", "aten::mm", "linear", "matmul", "mkldnn"),
}
VOCABULARY, OTHER = "vocabulary and loss", "other"
SHOWN = ("linear layers", "attention", "dropout", "norms", "embedding")
ORDER = (*SHOWN, VOCABULARY, "optimiser", OTHER)


class ProfiledTrainer(HeldTrainer):
    """Profiles each round's updates."""

    def begin(self) -> None:
        """Start the clock and the profiler."""
        gpu = [ProfilerActivity.CUDA] if self.device.type == "cuda" else []
        self.profile = profile(activities=[ProfilerActivity.CPU, *gpu], record_shapes=True)
        self.profile.__enter__()
        super().begin()

    def end(self) -> dict[str, Any]:
        """Stop both; adds the share of each kind of work."""
        took = super().end()
        self.profile.__exit__(None, None, None)
        return took | {"shares": self.shares()}

    def shares(self) -> dict[str, float]:
        """Each kind's share of the time that operations took."""
        vocab = self.model.output.out_features
        spent: dict[str, float] = defaultdict(float)
        events = self.profile.events()
        gpu = self.device.type == "cuda"
        for event in events or ():
            time = event.self_device_time_total if gpu else event.self_cpu_time_total
            spent[kind_of(list(_line(event)), vocab)] += time
        total = sum(spent.values()) or 1.0
        return {name: spent[name] / total for name in ORDER}


def kind_of(events: list[Any], vocab: int) -> str:
    """The kind of an operation, which comes first, with those that called it."""
    names = [event.name.lower() for event in events]
    if any("optimizer.step" in name for name in names):
        return "optimiser"
    name = names[0]
    kind = next((k for k, parts in KINDS.items() if any(p in name for p in parts)), OTHER)
    if kind in ("optimiser", "dropout", "norms", "embedding"):
        return kind
    if any("embedding" in caller for caller in names):
        return "embedding"
    if any("loss" in caller or "entropy" in caller for caller in names):
        return VOCABULARY
    sizes = (size for event in events[:3] for shape in event.input_shapes or () for size in shape)
    return VOCABULARY if vocab in sizes else kind


def _line(event: Any) -> Iterator[Any]:
    while event is not None:
        yield event
        event = event.cpu_parent


if __name__ == "__main__":
    main(ProfiledTrainer)
