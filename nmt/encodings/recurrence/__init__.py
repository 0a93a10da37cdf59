"""Order by recurrence and convolution instead of positions."""
