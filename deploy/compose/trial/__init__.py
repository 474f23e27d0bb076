"""`make compose-trial`: docker-compose.yml on a real engine, to its end, on a machine that can pull no image."""
