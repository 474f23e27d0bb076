"""How the project is run: the local stack here, images and dashboards beside it."""
