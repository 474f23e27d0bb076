"""The processes of the service: merge, heartbeats, workload, and the `lmerge` command."""
