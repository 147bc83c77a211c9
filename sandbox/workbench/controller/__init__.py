"""The controller: the services every use-case is given, its journal, its credentials and its host."""
