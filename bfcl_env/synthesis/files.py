"""GorillaFileSystem."""

from typing import Any

from bfcl_env.synthesis.operation import Domain


class Files(Domain):
    """A folder with two to four files and one or two folders."""

    owner = "GorillaFileSystem"

    def start(self) -> dict[str, Any]:
        contents = self._files(self.random.randint(2, 4))
        for _ in range(self.random.randint(1, 2)):
            contents[self.names.folder()] = {"type": "directory", "contents": self._files(self.random.randint(0, 1))}
        return {
            "root": {self.random.choice(("workspace", "home", "office")): {"type": "directory", "contents": contents}}
        }

    def _files(self, count: int) -> dict[str, Any]:
        lines = (range(self.random.randint(1, 3)) for _ in range(count))
        return {
            self.names.file(): {"type": "file", "content": "\n".join(self.names.sentence() for _ in those)}
            for those in lines
        }

    def _here(self) -> dict[str, Any]:
        return self.instance._current_dir.contents

    def _of_kind(self, folders: bool) -> list[str]:
        return [name for name, item in self._here().items() if hasattr(item, "contents") == folders]

    def new_file(self) -> Any:
        return self.fresh(self.names.file, self._here())

    def new_folder(self) -> Any:
        return self.fresh(self.names.folder, self._here())

    def file(self) -> Any:
        return self.any_of(name for name in self._of_kind(folders=False) if not self._here()[name].content.isspace())

    def other_file(self) -> Any:
        return self.any_of(name for name in self._of_kind(folders=False) if name != self.world.drawn["file"])

    def folder(self) -> Any:
        return self.any_of(self._of_kind(folders=True))

    def folder_without_it(self) -> Any:
        file = self.world.drawn["file"]
        return self.any_of(name for name in self._of_kind(folders=True) if file not in self._here()[name].contents)

    def empty_folder(self) -> Any:
        return self.any_of(name for name in self._of_kind(folders=True) if not self._here()[name].contents)

    def below(self) -> Any:
        return self.instance._current_dir.parent is not None

    def text(self) -> Any:
        return self.names.sentence()

    def word(self) -> Any:
        return self.any_of(word for word in self._here()[self.world.drawn["file"]].content.split() if len(word) > 4)

    def stem(self) -> Any:
        found = self.any_of(self._of_kind(folders=False))
        return found and found.partition(".")[0]

    def lines(self) -> Any:
        return self.random.randint(1, 3)
