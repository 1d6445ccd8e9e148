"""One technology a folder. An adapter knows its driver and the ports, and no other adapter."""
