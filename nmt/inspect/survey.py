"""Table 1 of Dufter, Schmitt, Schütze (2022), Position Information in Transformers: An Overview.

The second column is the survey's own: reference point (A absolute, R relative, B both), injection
(ape: adding position embeddings, mam: modifying the attention matrix), learnable, recurring,
unbound; the third its number of parameters. A cell that the table leaves blank has the value above.
t is the longest sequence, d the width, l layers, h heads, n word types, K components, D the
depth of a tree or graph. The survey counts one stack. The last column has the overrides that choose
the same here (without encoding=), alternatives parted by commas, or why nothing here realises it.
"""

from typing import NamedTuple


class Method(NamedTuple):
    """One row of the survey, and the overrides that choose the same here."""

    name: str
    cells: tuple[str, ...] = ()  # the five printed before the parameters; none outside Table 1
    parameters: str = ""  # as printed
    choices: tuple[str, ...] = ()  # an option of encoding=, and further overrides after it
    reason: str = ""  # why nothing here realises it


PREDICTED = "needs a non-autoregressive decoder and a predictor of its positions"

_TABLE_1 = """
Transformer w/ emb. (Vaswani et al. 2017) | A ape yes no no   | t d       | learned
BERT (Devlin et al. 2019)                 | A ape yes no no   | t d       | learned
Reformer (Kitaev et al. 2020)             | A ape yes no no   | (d - d1) t / t1 + d1 t1 | axial
FLOATER (Liu et al. 2020)                 | A ape yes yes yes | 0 or more | floater
Shortformer (Press et al. 2021)           | A ape no yes yes  | 0         | position_infused
Wang et al. (2020)                        | A - yes no yes    | 2 n d     | complex_order \
model.feedforward=complex
Shaw et al. (2018) (abs)                  | A mam yes yes no  | 2 t^2 d l | shaw_absolute
Shaw et al. (2018) (rel)                  | R mam yes yes no  | 2 (2 t - 1) d l | relative
T5 (Raffel et al. 2020)                   | R mam yes yes no  | (2 t - 1) h     | t5
Huang et al. (2020)                       | R mam yes yes no  | d l h (2 t - 1) | \
huang_1, huang_2, huang_3, huang_4
DeBERTa (He et al. 2021)                  | B both yes yes no | 3 t d         | deberta
Transformer XL (Dai et al. 2019)          | R mam yes yes yes | 2 d + d^2 l h | transformer_xl
TENER (Yan et al. 2019)                   | R mam yes yes yes | 2 d l h       | tener
DA-Transformer (Wu et al. 2021)           | R mam yes yes yes | 2 h           | da_transformer
TUPE (Ke et al. 2021)                     | B mam yes no no   | 2 d^2 + t (d + 2) | \
tupe_absolute, tupe_relative
RNN-Transf. (Neishi and Yoshinaga 2019)   | R - yes no yes    | 6 d^2 + 3 d   | gru, rr_transformer
SPE (Liutkus et al. 2021)                 | R mam yes yes no  | 3 K d h + l d | \
sine_spe, sine_spe_stochastic, conv_spe
Transformer w/ sin. (Vaswani et al. 2017) | A ape no no yes  | 0 | absolute
Li et al. (2019)                          | A ape no no yes  | 0 | mvpe
Takase and Okazaki (2019)                 | A ape no no yes  | 0 | ldpe, lrpe
Oka et al. (2020)                         | A ape no no yes  | 0 | \
ldpe encoding.ldpe.at.remaining.noise=4
Universal Transf. (Dehghani et al. 2019)  | A ape no yes yes | 0 | \
universal model.share_layers=true
DiSAN (Shen et al. 2018)                  | R mam no yes yes | 0 | disan
Rotary (Su et al. 2021)                   | R mam no yes yes | 0 | rotary
SPR-abs (Wang et al. 2019)                | A ape no no yes  | 0 | spr_absolute
SPR-rel (Wang et al. 2019)                | R mam yes no no  | 2 (2 t + 1) d | spr_relative
TPE (Shiv and Quirk 2019)                 | A ape yes no no  | d / D | tpe
Struct. Transformer (Zhu et al. 2019)     | R mam yes yes yes | 5 d^2 + (d + 1) d_r | structural
Graph Transformer (Cai and Lam 2020)      | R mam yes yes yes | 7 d^2 + 3 d   | graph_transformer
Graformer (Schmitt et al. 2021)           | R mam yes yes no  | 2 (D + 1) h   | graformer
Graph Transformer (Dwivedi and Bresson 2020) | A ape no no yes | 0 | laplacian
graph-bert (Zhang et al. 2020)            | B ape no no yes  | 0 | graph_bert
"""
_ELSEWHERE = f"""
Dufter et al. (2020)      | | | scalar_absolute, scalar_relative
Chang et al. (2021)       | | | composite
Likhomanenko et al. (2021)| | | cape
Rosendahl et al. (2019)   | | | lstm, relative_sinusoidal
PNAT (Bao et al. 2019)    | | | {PREDICTED}
You et al. (2020)         | | | gaussian
Beltagy et al. (2020)     | | | sliding_window
Tay et al. (2021)         | | | \
synthesizer, synthesizer_random, synthesizer_factorised
Artetxe et al. (2020)     | | | per_language
XL PE (Ding et al. 2020)  | | | xl_pe
Liu et al. (2021a)        | | | absolute model.drop_residual=[3]
Liu et al. (2021b)        | | | convolution
Chen et al. (2021)        | | | diet_absolute, diet_relative
"""  # in the survey's text or its Table 2, not in Table 1


def _methods(table: str) -> list[Method]:
    rows = []
    for line in table.strip().split("\n"):
        name, cells, parameters, last = (part.strip() for part in line.split("|"))
        missing = last == PREDICTED
        choices = () if missing else tuple(last.split(", "))
        rows.append(Method(name, tuple(cells.split()), parameters, choices, last * missing))
    return rows


METHODS, ELSEWHERE = _methods(_TABLE_1), _methods(_ELSEWHERE)
