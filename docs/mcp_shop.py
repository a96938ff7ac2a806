"""A shop whose tools are those of a MCP server that others wrote; its database file is what is judged.

    python3 -m venv ~/mcp-sqlite && ~/mcp-sqlite/bin/pip install mcp-server-sqlite "mcp<2"
    PATH=$PATH:~/mcp-sqlite/bin python -m recipe.tools.audit --environment docs/mcp_shop.py

The server gets an installation of its own because it needs an older version of the SDK.
"""

import sqlite3
from contextlib import closing

from interaction.mcp_tools import MCPTools
from interaction.tool_environment import Call, ToolTask

SHOP = MCPTools("mcp-server-sqlite --db-path shop.db", names=["list_tables", "read_query", "write_query"])
GOODS = {"lamp": 4, "chair": 9, "table": 2}


def database() -> bytes:
    with closing(sqlite3.connect(":memory:")) as shop:
        shop.execute("create table goods (name text primary key, stock integer)")
        shop.executemany("insert into goods values (?, ?)", GOODS.items())
        shop.commit()
        return shop.serialize()


def task(name: str, sold: int, part: str) -> ToolTask:
    def check(session, turn, calls, words):
        with closing(sqlite3.connect(session.folder / "shop.db")) as shop:
            left = dict(shop.execute("select name, stock from goods"))
        if turn == 0:
            return left == GOODS and any(f"'stock': {GOODS[name]}" in str(call.value) for call in calls)
        return left == GOODS | {name: GOODS[name] - sold}

    query = f"update goods set stock = stock - {sold} where name = '{name}'"
    turns = [
        (f"How many {name}s do we have?", [Call("read_query", {"query": "select * from goods"})]),
        (f"We sold {sold}. Please note it.", [Call("write_query", {"query": query})]),
    ]
    return ToolTask("mcp_shop", f"{name}_{sold}", SHOP, turns, {"shop.db": database()}, part, check=check)


def load_tasks():
    return [task("lamp", 3, "train"), task("chair", 2, "train"), task("table", 1, "test")]
