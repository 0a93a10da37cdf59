"""What every encoding must do, tried on small models: properties, cached decoding, cards."""
