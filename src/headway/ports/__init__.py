"""What Headway needs from the outside: Protocols of at most five methods each, and what an implementation owes."""
