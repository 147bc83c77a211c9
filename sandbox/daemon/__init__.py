"""The daemon of a home: it runs commands for thin clients, serves HTTP, and does what time asks for."""
