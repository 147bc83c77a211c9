"""The controller: the services that every use-case gets, its journal, its credentials and its host."""
