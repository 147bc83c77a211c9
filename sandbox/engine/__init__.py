"""The engine adapter: the only package that imports docker. Foreign errors are translated here, once."""
