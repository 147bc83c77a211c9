"""The way out of a guest that fetches packages: a proxy on a Unix socket that knows the allowed registries."""
