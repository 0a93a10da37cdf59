"""The state of a training that is neither weights nor moments, as JSON can hold it."""

from typing import Any, ClassVar


class Stateful:
    """Saves and restores the attributes that it names, as torch's modules do their tensors."""

    kept: ClassVar[tuple[str, ...]] = ()

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs to continue from here."""
        return {name: getattr(self, name) for name in self.kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where a state was saved; what an older version did not save stays as it is."""
        vars(self).update(state)
