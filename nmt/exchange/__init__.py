"""Models of other engines: read from their files, and compared with what these engines compute."""
