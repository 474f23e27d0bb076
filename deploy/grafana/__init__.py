"""Grafana's dashboards as code, for Grafana 11.6: `python -m deploy.grafana` writes `dashboards/*.json`.

One module a dashboard (`overview.py`, `inputs.py`, `internals.py`, `feeds.py`), made of the panels in `panels.py`.
`pictures.py` draws what they show of a run on this machine, without Grafana (`canvas.py`, `values.py`, `ask.py`).
"""
