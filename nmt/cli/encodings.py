"""nmt-encodings: what there is to choose from, and what each choice consists of."""

import sys

from nmt.cli.words import run
from nmt.errors import UserError

USAGE = """
nmt-encodings                                     all encodings, one line each
nmt-encodings NAME [GROUP=OPTION] [KEY=VALUE ...] one of them: options, hooks, parameters

  nmt-encodings relative
  nmt-encodings relative model=base tau=8
"""


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """List the encodings, or describe one."""
    from nmt.cli.compose import nearest, options_of
    from nmt.cli.help import summary

    if {"-h", "--help"} & set(argv):
        sys.stdout.write(USAGE.lstrip())
        return
    known = options_of("encoding")
    if not argv:
        sys.stdout.writelines(f"{o:<20} {summary('encoding', o)}\n" for o in known)
        return
    if argv[0] not in known:
        raise UserError(f"{argv[0]}: no such encoding{nearest(argv[0], known)}")
    sys.stdout.write(card(argv[0], argv[1:]))


def card(option: str, words: list[str]) -> str:
    """All that the code knows of one option, at the size that the words choose."""
    import torch

    from nmt import build
    from nmt.cli.compose import experiment_of
    from nmt.cli.help import encoding_keys, summary
    from nmt.encodings.composition import hooks_of
    from nmt.encodings.registry import find

    settings, _ = experiment_of([f"encoding={option}", *words])
    with torch.device("meta"):
        model = build.transformer(settings, 8, 8)
    lines = [option, f"  {summary('encoding', option)}", ""]
    for name, options in settings.encoding.items():
        cls = find(str(options.get("use", name)))
        module = sys.modules[cls.__module__]
        lines += _indent(module.__doc__ or "")
        lines += ["", *_indent(cls.__doc__ or ""), ""]
        lines.append(f"  hooks             {', '.join(hooks_of(cls)) or 'none'}")
        lines.append(f"  shift invariant   {'yes' if cls.relative else 'no'}")
    sites = {"encoder": model.encoder_encodings, "decoder": model.decoder_encodings}
    counts = {s: sum(p.numel() for p in e.parameters()) for s, e in sites.items()}
    lines.append(
        f"  parameters        {sum(counts.values()):,} in a model of {settings.model.dim} x "
        f"{settings.model.encoder_layers}+{settings.model.decoder_layers} layers "
        f"(encoder {counts['encoder']:,}, decoder {counts['decoder']:,})"
    )
    limit = model.source_limit
    lines.append(f"  longest sequence  {'any' if limit is None else limit}")
    fused = model.encoder_encodings.fusible
    lines.append(f"  fused attention   {'yes' if fused else 'no'}")
    lines += ["", "  keys"]
    for part in settings.encoding:
        lines += [f"    {k:<36} {doc} [{d}]" for k, d, doc in encoding_keys(part)]
    return "\n".join(lines) + "\n"


def _indent(text: str) -> list[str]:
    return [f"  {line.strip()}".rstrip() for line in text.strip().split("\n")]


if __name__ == "__main__":
    sys.exit(main())
