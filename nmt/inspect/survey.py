"""Table 1 of Dufter, Schmitt, Schütze (2022), Position Information in Transformers: An Overview.

What stands under `printed` is the survey's own: reference point (A absolute, R relative, B both),
injection (ape: adding position embeddings, mam: modifying the attention matrix), learnable,
recurring, unbound, number of parameters. A cell that the table leaves blank has the value above.
t is the longest sequence, d the width, l layers, h heads, n word types, K components, D the
depth of a tree or graph. The survey counts one stack.
"""

from typing import NamedTuple


class Row(NamedTuple):
    """One row of the survey, and the words that choose the same here."""

    name: str
    printed: str  # reference point, injection, learnable, recurring, unbound, then parameters
    words: tuple[str, ...] = ()  # alternatives; each is one choice, words parted by spaces
    reason: str = ""  # why nothing here realises it

    @property
    def cells(self) -> tuple[str, ...]:
        """The five printed cells before the parameters; empty for rows outside Table 1."""
        return tuple(self.printed.split()[:5])

    @property
    def parameters(self) -> str:
        """The printed number of parameters."""
        return " ".join(self.printed.split()[5:])


ROWS = (
    Row(
        "Transformer w/ emb. (Vaswani et al. 2017)",
        "A ape yes no no t d",
        ("encoding=learned",),
    ),
    Row("BERT (Devlin et al. 2019)", "A ape yes no no t d", ("encoding=learned",)),
    Row(
        "Reformer (Kitaev et al. 2020)",
        "A ape yes no no (d - d1) t / t1 + d1 t1",
        ("encoding=axial",),
    ),
    Row("FLOATER (Liu et al. 2020)", "A ape yes yes yes 0 or more", ("encoding=floater",)),
    Row("Shortformer (Press et al. 2021)", "A ape no yes yes 0", ("encoding=position_infused",)),
    Row(
        "Wang et al. (2020)",
        "A - yes no yes 2 n d",
        ("encoding=complex_order model.feedforward=complex",),
    ),
    Row("Shaw et al. (2018) (abs)", "A mam yes yes no 2 t^2 d l", ("encoding=shaw_absolute",)),
    Row("Shaw et al. (2018) (rel)", "R mam yes yes no 2 (2 t - 1) d l", ("encoding=relative",)),
    Row("T5 (Raffel et al. 2020)", "R mam yes yes no (2 t - 1) h", ("encoding=t5",)),
    Row(
        "Huang et al. (2020)",
        "R mam yes yes no d l h (2 t - 1)",
        ("encoding=huang_1", "encoding=huang_2", "encoding=huang_3", "encoding=huang_4"),
    ),
    Row("DeBERTa (He et al. 2021)", "B both yes yes no 3 t d", ("encoding=deberta",)),
    Row(
        "Transformer XL (Dai et al. 2019)",
        "R mam yes yes yes 2 d + d^2 l h",
        ("encoding=transformer_xl",),
    ),
    Row("TENER (Yan et al. 2019)", "R mam yes yes yes 2 d l h", ("encoding=tener",)),
    Row("DA-Transformer (Wu et al. 2021)", "R mam yes yes yes 2 h", ("encoding=da_transformer",)),
    Row(
        "TUPE (Ke et al. 2021)",
        "B mam yes no no 2 d^2 + t (d + 2)",
        ("encoding=tupe_absolute", "encoding=tupe_relative"),
    ),
    Row(
        "RNN-Transf. (Neishi and Yoshinaga 2019)",
        "R - yes no yes 6 d^2 + 3 d",
        ("encoding=gru", "encoding=rr_transformer"),
    ),
    Row(
        "SPE (Liutkus et al. 2021)",
        "R mam yes yes no 3 K d h + l d",
        ("encoding=sine_spe", "encoding=sine_spe_stochastic", "encoding=conv_spe"),
    ),
    Row(
        "Transformer w/ sin. (Vaswani et al. 2017)",
        "A ape no no yes 0",
        ("encoding=absolute",),
    ),
    Row("Li et al. (2019)", "A ape no no yes 0", ("encoding=mvpe",)),
    Row("Takase and Okazaki (2019)", "A ape no no yes 0", ("encoding=ldpe", "encoding=lrpe")),
    Row("Oka et al. (2020)", "A ape no no yes 0", ("encoding=ldpe model.length_head=true",)),
    Row(
        "Universal Transf. (Dehghani et al. 2019)",
        "A ape no yes yes 0",
        ("encoding=universal model.share_layers=true",),
    ),
    Row("DiSAN (Shen et al. 2018)", "R mam no yes yes 0", ("encoding=disan",)),
    Row("Rotary (Su et al. 2021)", "R mam no yes yes 0", ("encoding=rotary",)),
    Row("SPR-abs (Wang et al. 2019)", "A ape no no yes 0", ("encoding=spr_absolute",)),
    Row("SPR-rel (Wang et al. 2019)", "R mam yes no no 2 (2 t + 1) d", ("encoding=spr_relative",)),
    Row("TPE (Shiv and Quirk 2019)", "A ape yes no no d / D", ("encoding=tpe",)),
    Row(
        "Struct. Transformer (Zhu et al. 2019)",
        "R mam yes yes yes 5 d^2 + (d + 1) d_r",
        reason="needs the labelled path between every two words; a column has one number per word",
    ),
    Row(
        "Graph Transformer (Cai and Lam 2020)",
        "R mam yes yes yes 7 d^2 + 3 d",
        reason="needs the labelled path between every two words; a column has one number per word",
    ),
    Row("Graformer (Schmitt et al. 2021)", "R mam yes yes no 2 (D + 1) h", ("encoding=graformer",)),
    Row(
        "Graph Transformer (Dwivedi and Bresson 2020)",
        "A ape no no yes 0",
        reason="needs the eigenvectors of a graph, real numbers; a column has integers",
    ),
    Row("graph-bert (Zhang et al. 2020)", "B ape no no yes 0", ("encoding=graph_bert",)),
)

ELSEWHERE = (  # in the survey's text or its Table 2, not in Table 1
    Row("Dufter et al. (2020)", "", ("encoding=scalar_absolute", "encoding=scalar_relative")),
    Row("Chang et al. (2021)", "", ("encoding=composite",)),
    Row("Likhomanenko et al. (2021)", "", ("encoding=cape",)),
    Row("Rosendahl et al. (2019)", "", ("encoding=lstm", "encoding=relative_sinusoidal")),
    Row(
        "PNAT (Bao et al. 2019)",
        "",
        reason="needs a non-autoregressive decoder and a predictor of its positions",
    ),
    Row("Artetxe et al. (2020)", "", ("encoding=per_language",)),
    Row("XL PE (Ding et al. 2020)", "", ("encoding=xl_pe",)),
    Row("Liu et al. (2021a)", "", ("encoding=absolute model.drop_residual=[3]",)),
    Row("Liu et al. (2021b)", "", ("encoding=convolution",)),
    Row("Chen et al. (2021)", "", ("encoding=diet_absolute", "encoding=diet_relative")),
)
