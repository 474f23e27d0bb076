"""The heartbeat service: decides the progress and the lateness of a feed, once, for all replicas."""
