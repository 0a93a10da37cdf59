"""Systems translated, scored and compared by length: every figure is a value of counts of lines."""
