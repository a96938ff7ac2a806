"""MessageAPI."""

from typing import Any

from bfcl_env.synthesis.operation import Domain, got, op


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
        return self.any_of(w for item in self.instance.inbox for text in item.values() for w in text.split() if len(w) > 4)

    operations = (
        op("log in to messages as {user} | sign me in to the workspace with user id {user} | start a messaging session of user {user}", message_login={"user_id": "user"}, needs=["logged_out"]),
        op("log me in to messages as the user named {person} | sign in with the account of {person} | find out the id of {person} and log in with it", get_user_id={"user": "person"}, message_login={"user_id": got("user_id")}, needs=["logged_out"]),
        op("look up the user id of {person} | tell me the id of {person} | find out which id {person} has", get_user_id={"user": "person"}),
        op("send {message} to {user} | message {user} saying {message} | write to user {user}: {message}", send_message={"receiver_id": "user", "message": "message"}, needs=["logged_in"], weight=1.5),
        op("tell my contact {person} that {message} | write {message} to the person {person} | let {person} know: {message}", ("get_user_id", {"user": "person"}), ("send_message", {"receiver_id": got("user_id"), "message": "message"}), needs=["logged_in"], weight=1.5),
        op("send {message} to both {person} and {second_person} | tell {person} and {second_person} that {message} | inform {person} and also {second_person}: {message}", ("get_user_id", {"user": "person"}), ("get_user_id", {"user": "second_person"}), ("send_message", {"receiver_id": got("user_id", call=0), "message": "message"}), ("send_message", {"receiver_id": got("user_id", call=1), "message": "message"}), needs=["logged_in"], weight=0.5),
        op("delete the latest message to {receiver} | remove what was last sent to {receiver} | take back the last message for {receiver}", delete_message={"receiver_id": "receiver"}, needs=["logged_in"]),
        op("add {new_person} to my contacts | create a new contact {new_person} | put {new_person} on the contact list", add_contact={"user_name": "new_person"}),
        op("add the contact {new_person} and send them {message} | create a contact for {new_person} and write them {message} | put {new_person} on the contact list and greet them with {message}", add_contact={"user_name": "new_person"}, send_message={"receiver_id": got("user_id"), "message": "message"}, needs=["logged_in"], weight=0.7),
        op("list all users | show me everyone in the workspace | tell me who is in the workspace", list_users={}, weight=0.5),
        op("check whether I am logged in to messages | tell me the messaging login status | see if my messaging session is open", message_get_login_status={}, weight=0.3),
        op("show all messages I sent | list my sent messages | give me an overview of what I have sent", view_messages_sent={}, needs=["logged_in"], weight=0.5),
        op("give me the message statistics | show my messaging stats | tell me the figures about my messages", get_message_stats={}, needs=["logged_in"], weight=0.5),
        op("search my messages for {keyword} | find messages that mention {keyword} | look for {keyword} in what was sent", search_messages={"keyword": "keyword"}, needs=["logged_in"], weight=0.8),
    )  # fmt: skip
