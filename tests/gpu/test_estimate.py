"""Kernels and bytes that are counted without a GPU, beside a count by hand."""

import torch
from torch import nn

from nmt.overrides.compose import experiment_of
from tests.gpu.counting import CHUNK, TENSORS, Kernel, counted, foreach, made, moved
from tests.gpu.estimate import estimate, update
from tests.gpu.fusing import fused

ROWS, INPUTS, OUTPUTS = 6, 8, 4
FLOAT = 4  # bytes


def names(kernels: list[Kernel]) -> list[str]:
    return [kernel.name for kernel in kernels]


def test_a_layer_and_its_gradients_by_hand() -> None:
    with counted() as counting:
        layer = moved(nn.Linear(INPUTS, OUTPUTS))
        x = made(ROWS, INPUTS)
        y = layer(x)
        (forward,) = counting.kernels
        counting.kernels.clear()
        y.backward(made(ROWS, OUTPUTS))
        backward = list(counting.kernels)
    sizes = {"x": ROWS * INPUTS, "w": INPUTS * OUTPUTS, "b": OUTPUTS, "y": ROWS * OUTPUTS}
    assert (forward.name, forward.bytes) == ("addmm", FLOAT * sum(sizes.values()))
    assert forward.operations == 2 * ROWS * INPUTS * OUTPUTS
    assert names(backward) == ["mm", "sum"]  # of the weight and of the bias
    product, summed = backward
    assert product.bytes == FLOAT * (sizes["y"] + sizes["x"] + sizes["w"])
    assert product.operations == forward.operations
    assert summed.bytes == FLOAT * (sizes["y"] + sizes["b"])


def test_kernels_on_lists_hold_so_many_tensors_and_parts() -> None:
    small = [torch.empty(3)] * (TENSORS[2] + 1)
    assert foreach([small, small]) == 2
    large = [torch.empty(CHUNK * 321, device="meta")]
    assert foreach([large, large]) == 2


def test_what_reads_what_another_made_becomes_one_kernel() -> None:
    def kernel(name: str, read: int, written: int, operations: int = 0) -> Kernel:
        return Kernel(name, 1, 80, operations, {read: 40}, {written: 40}, 10)

    chain = [kernel("add", 1, 2), kernel("mul", 2, 3), kernel("mm", 3, 4, 5), kernel("relu", 4, 5)]
    (after,) = fused([chain], [True])
    assert names(after) == ["add+mul", "mm", "relu"]
    assert after[0].bytes == 80  # what lies between is neither written nor read
    assert names(fused([chain], [False])[0]) == names(chain)


def test_an_update_of_a_model_is_counted_in_parts() -> None:
    settings = experiment_of(["encoding=relative", "model=tiny"]).settings
    found = update(settings, rows=3, length=5, vocab=40)
    assert all(found)
    assert sum(k.name == "relative attention" for k in found.forward) == 2 * 2
    assert "_fused_adamw_" in names(found.optimizer) and "smoothed loss" in names(found.loss)
    whole, less = (estimate(part.all, 10**6) for part in (found, found.compiled()))
    assert less.kernels < whole.kernels and less.bytes < whole.bytes
