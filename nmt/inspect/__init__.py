"""Understanding encodings and trained models: card, table, picture, and checks of what they do."""
