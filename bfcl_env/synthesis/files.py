"""GorillaFileSystem."""

from typing import Any

from bfcl_env.synthesis.operation import Domain, Fixed, op


class Files(Domain):
    """A folder with two to four files and one or two folders."""

    owner = "GorillaFileSystem"

    def start(self) -> dict[str, Any]:
        contents = self._files(self.random.randint(2, 4))
        for _ in range(self.random.randint(1, 2)):
            contents[self.names.folder()] = {"type": "directory", "contents": self._files(self.random.randint(0, 1))}
        return {"root": {self.random.choice(("workspace", "home", "office")): {"type": "directory", "contents": contents}}}

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

    operations = (
        op("create an empty file {new_file} | make a new file named {new_file} | touch {new_file}", touch={"file_name": "new_file"}),
        op("create a folder {new_folder} | make a new directory named {new_folder} | set up a directory called {new_folder}", mkdir={"dir_name": "new_folder"}),
        op("write {text} into {file} | replace the content of {file} by {text} | put the text {text} in {file}", echo={"content": "text", "file_name": "file"}),
        op("write {text} into a new file {new_file} | save {text} as {new_file} | store the line {text} under the name {new_file}", echo={"content": "text", "file_name": "new_file"}, weight=1.5),
        op("print the text {text} on the terminal | echo {text} on the screen | display {text} in the terminal without saving it", echo={"content": "text"}, weight=0.3),
        op("show me what is in {file} | print the content of {file} | read {file} to me", cat={"file_name": "file"}),
        op("sort the lines of {file} | show {file} in alphabetical order | list the lines of {file} sorted", sort={"file_name": "file"}),
        op("delete {file} | remove the file {file} | get rid of {file}", rm={"file_name": "file"}),
        op("count the lines in {file} | tell me how many lines {file} has | give me the line count of {file}", wc={"file_name": "file", "mode": Fixed("l")}),
        op("count the words in {file} | tell me how many words {file} has | give me the word count of {file}", wc={"file_name": "file", "mode": Fixed("w")}),
        op("count the characters in {file} | tell me how many characters {file} has | give me the character count of {file}", wc={"file_name": "file", "mode": Fixed("c")}),
        op("show the last {lines} lines of {file} | print the final {lines} lines from {file} | show how {file} ends, {lines} lines of it", tail={"file_name": "file", "lines": "lines"}),
        op("find the lines with {word} in {file} | search {file} for {word} | show where {word} stands in {file}", grep={"file_name": "file", "pattern": "word"}),
        op("compare {file} with {other_file} | show the differences between {file} and {other_file} | tell me how {file} differs from {other_file}", diff={"file_name1": "file", "file_name2": "other_file"}),
        op("move {file} into {folder_without_it} | put the file {file} into the folder {folder_without_it} | file {file} away in {folder_without_it}", mv={"source": "file", "destination": "folder_without_it"}),
        op("rename {file} to {new_file} | change the name of {file} to {new_file} | give {file} the new name {new_file}", mv={"source": "file", "destination": "new_file"}),
        op("copy {file} into {folder_without_it} | place a copy of {file} in the folder {folder_without_it} | keep a duplicate of {file} in {folder_without_it}", cp={"source": "file", "destination": "folder_without_it"}),
        op("copy {file} to {new_file} | duplicate {file} as {new_file} | make a copy of {file} named {new_file}", cp={"source": "file", "destination": "new_file"}),
        op("go into {folder} | open the folder {folder} | change to the directory {folder}", cd={"folder": "folder"}),
        op("go back up one level | return to the parent folder | leave this folder for the one above", cd={"folder": Fixed("..")}, needs=["below"]),
        op("list everything here, hidden files too | show all files including hidden ones | list all that is here, hidden or not", ls={"a": Fixed(True)}, weight=0.5),
        op("list the files here | show me what this folder holds | tell me what is in the current folder", ls={}, weight=0.5),
        op("tell me which folder we are in | show the current directory path | print the working directory", pwd={}, weight=0.4),
        op("find everything named {stem} under here | locate all items called {stem} below this folder | look for {stem} here and below", find={"path": Fixed("."), "name": "stem"}, weight=0.7),
        op("tell me the disk usage in readable units | show the human readable disk usage | report in a readable form how much space this takes", du={"human_readable": Fixed(True)}, weight=0.3),
        op("tell me the disk usage in bytes | show the raw disk usage | report how many bytes this takes", du={}, weight=0.3),
        op("remove the empty folder {empty_folder} | delete the directory {empty_folder} | drop the folder {empty_folder}, it is empty", rmdir={"dir_name": "empty_folder"}),
        op("copy {file} into a new folder {new_folder} | make a folder {new_folder} and copy {file} there | set up {new_folder} with a copy of {file} in it", mkdir={"dir_name": "new_folder"}, cp={"source": "file", "destination": "new_folder"}),
        op("move {file} into a new folder {new_folder} | make a folder {new_folder} and move {file} there | set up {new_folder} and put {file} into it", mkdir={"dir_name": "new_folder"}, mv={"source": "file", "destination": "new_folder"}),
        op("go into {folder} and list what is there | open {folder} and show its files | look at what the folder {folder} holds, and stay in it", cd={"folder": "folder"}, ls={}),
    )  # fmt: skip
