"""From BFCL's task files to the parquet files that training reads: `python -m data_prep --out DIR`."""
