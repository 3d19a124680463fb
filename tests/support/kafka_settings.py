"""Settings of topics and brokers, changed as their operator would."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

TOPIC, BROKER = ConfigResource.Type.TOPIC, ConfigResource.Type.BROKER


def change_settings(admin: AdminClient, kind: ConfigResource.Type, name: str, settings: Mapping[str, str]) -> None:
    """Sets them, and waits until the broker has said so."""
    entries = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in settings.items()]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result()
