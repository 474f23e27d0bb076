"""Spark jobs that compute a query and write its result as a stream of elements."""
