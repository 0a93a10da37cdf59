"""Settings: declared once, checked, composed from conf/ by Hydra, and listed.

Nothing is imported here, since to read the settings of a model takes neither Hydra nor OmegaConf.
"""
