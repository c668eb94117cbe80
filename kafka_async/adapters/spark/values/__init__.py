"""Records to columns: Kafka's own, and those decoded from the bytes of keys and values.

schema.py       which columns a row has; ddl.py: Spark's DDL as Arrow types
columns.py      Kafka's own columns
formats.py      what ``value.format`` and the other ``value.*`` options mean
decoding.py     the base of all formats
json_values.py  JSON; json_bulk.py, json_records.py, json_rows.py: whole batches, single values, rows; times.py: dates and times
avro.py         Avro; avro_schema.py: its schemas; registry.py: where they come from
"""
