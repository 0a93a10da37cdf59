"""Files and directories that are whole or absent: atomic writes, manifests, where a model is."""
