"""The images, and the script by which a container asks whether it is healthy."""
