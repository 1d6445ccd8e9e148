"""The composition root: the only reader of URLs, environment, files and arguments."""
