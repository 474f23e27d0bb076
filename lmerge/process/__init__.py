"""What every process needs, a service or a replica: the options of a cluster, probes, and the merge service's API.

With `lmerge.kafka` the only part of `lmerge` that does I/O; `services` and `replicas`, which do not know each other,
both import it.
"""
