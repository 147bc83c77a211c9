"""The attacks, one module for each section of the threat list."""
