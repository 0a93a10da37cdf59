"""How Sphinx turns the pages of this folder into a site: `make docs`."""

project = "nmt"
html_title = "nmt"
html_theme = "furo"
html_show_copyright = False
html_copy_source = False
extensions = ["myst_parser"]
highlight_language = "none"  # a block that names no language is a table or output
myst_heading_anchors = 4  # links to headings, as GitHub makes them
# of links out of this folder; tests/test_readme.py checks all links
suppress_warnings = ["myst.xref_missing"]
