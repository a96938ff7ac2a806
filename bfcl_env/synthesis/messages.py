"""MessageAPI."""

from typing import Any

from bfcl_env.synthesis.operation import Domain


class Messages(Domain):
    """A workspace of three or four people; most often somebody is logged in."""

    owner = "MessageAPI"

    def start(self) -> dict[str, Any]:
        people = {self.names.person(): f"USR{number}" for number in self.random.sample(range(100, 999), 4)}
        me, *others = people.values()
        return {
            "random_seed": self.random.randint(1, 10**6),
            "user_count": self.random.randint(10, 90),
            "user_map": people,
            "inbox": [{user: self.names.sentence()} for user in self.random.sample(others, 2)],
            "message_count": 2,
            "current_user": me if self.random.random() < 0.75 else None,
        }

    def logged_in(self) -> Any:
        return self.instance.current_user

    def logged_out(self) -> Any:
        return not self.instance.current_user

    def person(self) -> Any:
        return self.any_of(name for name, user in self.instance.user_map.items() if user != self.instance.current_user)

    def second_person(self) -> Any:
        taken = (self.world.drawn["person"], *(n for n, u in self.instance.user_map.items() if u == self.logged_in()))
        return self.any_of(name for name in self.instance.user_map if name not in taken)

    def user(self) -> Any:
        return self.any_of(user for user in self.instance.user_map.values() if user != self.instance.current_user)

    def receiver(self) -> Any:
        return self.any_of(user for message in self.instance.inbox for user in message)

    def new_person(self) -> Any:
        return self.fresh(self.names.person, self.instance.user_map)

    def message(self) -> Any:
        return self.names.sentence()

    def keyword(self) -> Any:
        return self.any_of(
            w for item in self.instance.inbox for text in item.values() for w in text.split() if len(w) > 4
        )
