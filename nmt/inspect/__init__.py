"""What one looks at to understand an encoding or a trained model: card, table, picture, parity."""
