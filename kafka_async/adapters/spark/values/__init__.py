"""Records to columns: those of Kafka, and what the bytes of keys and values are decoded to.

schema.py       which columns a row has; ddl.py: Spark's DDL as Arrow types
columns.py      Kafka's own columns
formats.py      what ``value.format`` and the other ``value.*`` options mean
decoding.py     what every format has in common
json_values.py  JSON; json_bulk.py, json_records.py, json_rows.py: whole batches, single values, rows; times.py: dates and times
avro.py         Avro; avro_schema.py: its schemas; registry.py: where they come from
"""
