"""The configuration of a local cluster's brokers.

Every node is broker and controller in one (KRaft's combined mode) and listens on the loopback interface only.
"""

from deploy.local.layout import Layout, Node
from deploy.local.ports import HOST

_ALWAYS = {
    "process.roles": "broker,controller",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.dirs": "data",  # beside the file: the checkout's path may hold a comma, which would separate directories
    "auto.create.topics.enable": "false",  # a misspelt topic is an error, not a new topic
    # Small: one partition per internal topic, few threads; the cleaner's buffer is 128 MB of heap by default.
    "num.network.threads": "2",
    "num.io.threads": "2",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # Quick take-over: without these minima no group may ask for less than 45 s ("consumer") or 6 s ("classic").
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    # Looked for every 10 s by default: that long would a dead writer's open transaction hold up readers.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",  # compaction within a test's patience
    # For this long a killed broker's partitions do not move, and it may not come back either (default: 9 s). With
    # several heartbeats in that time a busy machine does not look like a death.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}

LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""
"""Kafka logs to standard output, which is the broker's log file: a crash of the JVM is told in the same place."""


def server_properties(layout: Layout, node: Node) -> str:
    """Return the text of a node's `server.properties`."""
    listeners = f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}"
    # The voters are static: unlike dynamic ones they are not written to disk, so kept data can move to other ports.
    voters = ",".join(f"{peer.id}@{HOST}:{peer.controller_port}" for peer in layout.nodes)
    settings = {
        "node.id": str(node.id),
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.voters": voters,
        **_ALWAYS,
        **_replication(len(layout.nodes)),
        **layout.settings,
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _replication(nodes: int) -> dict[str, str]:
    """Every node holds a copy; all but one must have a record before it counts as written."""
    least = str(max(1, nodes - 1))
    settings = {"default.replication.factor": str(nodes), "min.insync.replicas": least}
    settings["offsets.topic.replication.factor"] = str(nodes)
    for topic in ("transaction.state.log", "share.coordinator.state.topic"):
        settings |= {f"{topic}.replication.factor": str(nodes), f"{topic}.min.isr": least}
    return settings
