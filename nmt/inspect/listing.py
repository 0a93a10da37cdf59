"""All encodings by their families, one line each; imports no torch."""

from nmt.config.catalog import Folders, families, summary


def encoding_list(folders: Folders = ()) -> str:
    """The names and first comments of all options, those of `folders` among them."""
    groups = families(folders)
    width = max(len(option) for options in groups.values() for option in options)
    blocks = []
    for family, options in groups.items():
        lines = [f"  {o:<{width}}  {summary('encoding', o, folders)}" for o in options]
        blocks.append("\n".join([family, *lines]) + "\n")
    return "\n".join(blocks)
