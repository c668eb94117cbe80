"""Tables into files: what ``kafka-async export`` does with the batches of a scan.

forms.py     batches as Parquet, Arrow, CSV and lines of JSON; json_lines.py: rows as JSON
exporting.py  all of it; parts.py: which offsets go into which file
whole.py     a file that is there whole or not at all
"""
