"""Records to columns: those of Kafka, and what the bytes of keys and values are decoded to."""
