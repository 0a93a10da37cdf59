"""What finished runs tell: tables beside the paper's, curves, attention, translations, one page."""
