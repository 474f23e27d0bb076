"""Write the dashboards: `python -m deploy.grafana`."""

from deploy.grafana.generate import DASHBOARDS, generate


def main() -> None:
    """Write every dashboard to its file."""
    DASHBOARDS.mkdir(exist_ok=True)
    for name, text in generate().items():
        (DASHBOARDS / name).write_text(text)
        print(f"deploy/grafana/dashboards/{name}")


if __name__ == "__main__":
    main()
