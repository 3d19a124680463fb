"""The Python SDK for robots and submitters; it needs neither Kafka nor RocksDB."""
