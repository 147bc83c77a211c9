"""What the demo and the tests share; not part of the product and not in its wheel."""
