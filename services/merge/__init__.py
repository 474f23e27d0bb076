"""The merge service: desired state from `lmerge.control`, lanes from input topics to the merged topic, REST."""
