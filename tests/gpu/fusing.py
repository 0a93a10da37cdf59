"""What a compiler would make of a list of kernels, by a simple rule.

Element by element work and sums over the last axis (layer norm, softmax) with equally many elements
become one kernel where one reads what another makes, or both read the same tensor, unless something
that stays alone must happen between them. Alone stay products, attention, sums over tokens, and
whatever has several launches. Equal casts of one tensor happen once. A fused kernel reads what it
does not make itself, and writes what others read.

So torch's Inductor decides, roughly. It also computes again in the backward pass what is cheap, and
may lay out memory otherwise; it may fail to fuse where a transposed tensor meets a plain one. The
rule is neither a bound from above nor from below.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.gpu.counting import Kernel

ALONE = ("attention", "relative", "smoothed", "_foreach", "_fused", "cat", "scatter", "index_add")
LARGE = 2  # bytes of an element from which a tensor read twice is worth one kernel


def fused(parts: Sequence[Sequence[Kernel]], compiled: Sequence[bool]) -> list[list[Kernel]]:
    """The parts of an update, of which those that are compiled are fused, each by itself."""
    graph = _Graph(parts, compiled)
    return [list(graph.kernels(number)) for number in range(len(parts))]


class _Made(NamedTuple):
    """What one kernel wrote, until another one writes there."""

    maker: int  # number of the kernel; -1: what was there before
    memory: int


class _Graph:
    """Kernels by number, who reads whose results, and which of them are one."""

    def __init__(self, parts: Sequence[Sequence[Kernel]], compiled: Sequence[bool]) -> None:
        self.all = [k for part in parts for k in part]
        self.part = [number for number, part in enumerate(parts) for _ in part]
        self.compiled = compiled
        self.reads: list[dict[_Made, int]] = []  # of each kernel -> bytes
        self.readers: dict[_Made, set[int]] = {}
        self.follows: list[set[int]] = []  # of a group: kernels that come before it
        self.group = list(range(len(self.all)))
        self.members = {number: [number] for number in self.group}
        self.gone: set[int] = set()
        self._link()
        for number in range(len(self.all)):
            self._join(number)

    def _link(self) -> None:
        """Find who reads what, and drop equal casts."""
        made: dict[int, _Made] = {}  # memory -> what lies there
        casts: dict[tuple[int, _Made, int], _Made] = {}
        for number, kernel in enumerate(self.all):
            reads = {made.get(m, _Made(-1, m)): size for m, size in kernel.reads.items()}
            before = {made[m] for m in kernel.writes if m in made}
            own = {memory: _Made(number, memory) for memory in kernel.writes}
            self.reads.append(reads)
            self.follows.append({of.maker for of in {*reads, *before} if of.maker >= 0})
            if kernel.name == "_to_copy" and self.compiled[self.part[number]]:
                (source,), ((memory, size),) = reads, kernel.writes.items()
                own[memory] = casts.setdefault((self.part[number], source, size), own[memory])
                if own[memory].maker != number:
                    self.gone.add(number)
            if number not in self.gone:
                for read in reads:
                    self.readers.setdefault(read, set()).add(number)
            made.update(own)

    def _join(self, number: int) -> None:
        """Make a kernel one with those that make or read what it reads."""
        if not self._fusible(number):
            return
        kernel = self.all[number]
        near = [read.maker for read in self.reads[number] if read.maker >= 0]
        for read, size in self.reads[number].items():
            if size >= LARGE * kernel.elements:
                near += sorted(other for other in self.readers[read] if other < number)
        for other in near:
            alike = self._fusible(other) and self.part[other] == self.part[number]
            if alike and self.all[other].elements == kernel.elements:
                self._merge(self.group[other], self.group[number])

    def _fusible(self, number: int) -> bool:
        kernel = self.all[number]
        alone = kernel.operations or kernel.launches > 1 or kernel.name.startswith(ALONE)
        return self.compiled[self.part[number]] and not alone and number not in self.gone

    def _merge(self, one: int, other: int) -> None:
        """Make two groups one, unless something must happen between them."""
        if one == other or self._between(one, other) or self._between(other, one):
            return
        self.members[one] += self.members.pop(other)
        for number in self.members[one]:
            self.group[number] = one
        self.follows[one] |= self.follows[other]

    def _between(self, first: int, last: int) -> bool:
        """Whether another group follows the first one and comes before the last one."""
        since = min(self.members[first])
        left = [g for g in self._before(last) if g != first]
        seen = set(left)
        while left:
            for group in self._before(left.pop()):
                if group == first:
                    return True
                if group not in seen and max(self.members[group]) > since:
                    seen.add(group)
                    left.append(group)
        return False

    def _before(self, group: int) -> set[int]:
        return {self.group[number] for number in self.follows[group]} - {group}

    def kernels(self, part: int) -> Iterator[Kernel]:
        """The kernels of a part that are left."""
        for group, members in self.members.items():
            if self.part[group] != part or group in self.gone:
                continue
            yield self.all[group] if len(members) == 1 else self._whole(members)

    def _whole(self, members: list[int]) -> Kernel:
        """One kernel instead of several."""
        own = set(members)
        reads = {
            read: size
            for m in members
            for read, size in self.reads[m].items()
            if read.maker not in own
        }
        writes = {
            memory: size
            for m in members
            for memory, size in self.all[m].writes.items()
            if self.readers.get(_Made(m, memory), set()) - own
        }
        names = "+".join(self.all[m].name for m in sorted(members))
        total = sum(reads.values()) + sum(writes.values())
        of = {read.memory: size for read, size in reads.items()}
        return Kernel(names, 1, total, 0, of, writes, self.all[members[0]].elements)
