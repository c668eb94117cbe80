"""A topic as a table, as one would read it in a notebook (extras ``arrow`` and ``json``; polars if it is there).

Nothing is read before a table is used, and all that use it see the same records.
"""

from importlib.util import find_spec

import pyarrow.compute as pc

import kafka_async
from examples.mock import source


def main() -> None:
    """Look at what there is, read it, and sum it up."""
    with source() as (bootstrap, topic, _):
        orders = kafka_async.scan(
            topic,
            bootstrap_servers=bootstrap,
            since="-1d",
            values="json",
            schema="order STRING, customer STRING, item STRING, quantity INT, cents BIGINT",
            columns=["item", "quantity", "cents", "_kafka_partition", "_kafka_offset"],
        )
        print(orders.plan())
        print(orders.head(1).to_pylist()[0])

        table = orders.to_arrow()
        print(f"{table.num_rows} orders, {pc.sum(table.column('cents')).as_py() / 100:,.2f} in total")
        for row in table.group_by("item").aggregate([("cents", "sum")]).sort_by("item").to_pylist():
            print(f"{row['cents_sum'] / 100:12,.2f} {row['item']}")

        if find_spec("polars") is not None:
            import polars

            lazy = orders.lazy().group_by("item").agg(polars.col("quantity").sum()).sort("quantity", descending=True)
            print(f"most wanted: {lazy.head(1).collect()['item'].item()}")


if __name__ == "__main__":
    main()
