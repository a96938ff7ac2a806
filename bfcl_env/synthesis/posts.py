"""TwitterAPI."""

from typing import Any

from bfcl_env.synthesis.operation import Domain
from bfcl_env.synthesis.words import ADJECTIVES

NEW = ("the tweet I just posted", "my new tweet", "that tweet")


class Posts(Domain):
    """Three tweets; most often the account is logged in."""

    owner = "TwitterAPI"

    def start(self) -> dict[str, Any]:
        me, first = self.names.account(), self.random.randint(3, 900)
        tweets = {
            str(number): {
                "id": number,
                "username": self.random.choice((me, self.names.account())),
                "content": self.names.sentence(),
                "tags": [f"#{self.random.choice(ADJECTIVES)}"],
                "mentions": [],
            }
            for number in range(first, first + 3)
        }
        return {
            "username": me,
            "password": self.names.title().replace(" ", ""),
            "authenticated": self.random.random() < 0.75,
            "tweets": tweets,
            "comments": {},
            "retweets": {},
            "following_list": [self.names.account() for _ in range(2)],
            "tweet_counter": first + 3,
        }

    def logged_in(self) -> Any:
        return self.instance.authenticated

    def logged_out(self) -> Any:
        return not self.instance.authenticated

    def own_account(self) -> Any:
        return self.instance.username

    def password(self) -> Any:
        return self.instance.password

    def post(self) -> Any:
        return self.names.sentence()

    def comment_text(self) -> Any:
        return self.names.sentence()

    def tag(self) -> Any:
        return f"#{self.random.choice(ADJECTIVES)}"

    def mentioned(self) -> Any:
        return f"@{self.names.account()}"

    def tweet(self) -> Any:
        return self.referred("tweet", self.instance.tweets, NEW, "tweet {}")

    def tweet_not_shared(self) -> Any:
        shared = self.instance.retweets.get(self.instance.username, [])
        return self.referred("tweet", [item for item in self.instance.tweets if item not in shared], NEW, "tweet {}")

    def new_account(self) -> Any:
        return self.fresh(self.names.account, self.instance.following_list)

    def followed(self) -> Any:
        return self.any_of(self.instance.following_list)

    def author(self) -> Any:
        return self.any_of(tweet["username"] for tweet in self.instance.tweets.values())

    def topic(self) -> Any:
        return self.any_of(w for tweet in self.instance.tweets.values() for w in tweet["content"].split() if len(w) > 4)
