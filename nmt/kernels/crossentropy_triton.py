"""The Triton kernel of a smoothed cross-entropy: see `nmt.kernels.crossentropy`.

Imported only where triton is. A program takes the logits of one token [vocab], twice: once for the
loss and the logarithm that the softmax needs, once to put the gradient in their place. The second
time most of them come from the cache.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["vocab"])
def smoothed(
    logits, bias, target, loss, nll, vocab, wide, smoothing,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """loss [n], nll [n] of logits [n, wide] + bias [wide] at target [n]; see there.

    With masks by `wide`, a multiple of 16, threads load 16 bytes at once; by `vocab`, one number.
    """
    token = tl.program_id(0).to(tl.int64)
    row = logits + token * wide
    true = tl.load(target + token)
    largest = tl.full((), -float("inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    added = tl.zeros((), tl.float32)
    chosen = tl.zeros((), tl.float32)
    for start in range(0, wide, BLOCK):
        v = start + tl.arange(0, BLOCK)
        x = tl.load(row + v, mask=v < wide, other=0.0).to(tl.float32)
        x += tl.load(bias + v, mask=v < wide, other=-float("inf"))
        new = tl.maximum(largest, tl.max(x, 0))
        total = total * tl.exp(largest - new) + tl.sum(tl.exp(x - new), 0)
        largest = new
        added += tl.sum(tl.where(v < vocab, x, 0.0), 0)
        chosen += tl.sum(tl.where(v == true, x, 0.0), 0)
    logarithm = largest + tl.log(total)
    share = smoothing / vocab
    tl.store(nll + token, logarithm - chosen)
    tl.store(loss + token, logarithm - (1 - smoothing) * chosen - share * added)
    for start in range(0, wide, BLOCK):
        v = start + tl.arange(0, BLOCK)
        x = tl.load(row + v, mask=v < wide, other=0.0).to(tl.float32)
        x += tl.load(bias + v, mask=v < wide, other=0.0)
        by_x = tl.exp(x - logarithm) - share - tl.where(v == true, 1 - smoothing, 0.0)
        tl.store(row + v, by_x.to(logits.dtype.element_ty), mask=v < wide)
