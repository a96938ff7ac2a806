import sqlite3

from interaction.tool_environment import Call, ToolTask


class Library:
    def reset(self, **_):
        self.db = sqlite3.connect(":memory:", check_same_thread=False)
        self.db.execute("create table books (title, reader)")
        self.db.executemany("insert into books values (?, 'shelf')", [("Emma",), ("Dune",), ("Ulysses",), ("Ivanhoe",)])

    def __eq__(self, other):
        return list(self.db.iterdump()) == list(other.db.iterdump())

    def lend(self, title: str, reader: str) -> str:
        """Lend a book.

        Args:
            title: title of the book
            reader: who takes it
        """
        if not self.db.execute("update books set reader = ? where title = ?", (reader, title)).rowcount:
            raise ValueError(f"there is no book {title!r}")
        return f"{reader} has {title}"


def load_tasks():
    for name, part in zip("Ann Bob Cem Dora Eve Finn".split(), ["train"] * 4 + ["dev", "test"], strict=True):
        gold = {t: [Call("lend", {"title": t, "reader": name})] for t in ("Emma", "Dune", "Ulysses", "Ivanhoe")}
        yield from (ToolTask("library", name + t, Library, [(f"{name} takes {t}.", gold[t])], part=part) for t in gold)
