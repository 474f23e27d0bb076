"""The queries that come with LMerge, one file each; `replicas.query` says what a query is."""
