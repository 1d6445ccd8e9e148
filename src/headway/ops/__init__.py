"""Tools over the ports, for people who run services: no driver, no clock of their own."""
