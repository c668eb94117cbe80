"""Bytes of keys and values to Arrow columns, for whoever reads tables; imports neither Spark nor pandas.

formats.py      what ``value.format`` and the other ``value.*`` options mean; names.py: what they are called
columns.py      what scans and exports use of it: batches of records to batches of fields; typed.py: what makes that
relatives.py    types that Spark does not have; inference.py: the fields of JSON in a sample;
                json_schema.py: those of a JSON Schema
decoding.py     the base of all formats; ddl.py: columns in Spark's DDL as Arrow types
json_values.py  JSON; json_bulk.py, json_records.py, json_rows.py: whole batches, single values, rows; times.py: dates and times
avro.py         Avro; avro_bulk.py, _avro_bulk.pyx: whole batches; avro_schema.py: its schemas; registry.py: where they come from
protobuf.py     Protobuf; framed.py: values whose schemas are in a registry
secrets.py      what stands for a secret, and what no error shows
"""
