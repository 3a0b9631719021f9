"""How arrays are divided over devices; ``exburn.distribution`` is the public side."""
