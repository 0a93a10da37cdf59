"""What is known of an encoding, found by asking and running it: card, table, picture."""
