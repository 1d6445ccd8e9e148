"""The only place with clocks, tasks and threads: calls, leases, the consumer, the relay."""
