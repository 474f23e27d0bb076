"""What docker-compose.yml mounts and needs: the feed, the merge, the smoke test; and its trial on a real engine."""
