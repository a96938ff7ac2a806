"""TwitterAPI."""

from typing import Any

from bfcl_env.synthesis.operation import Domain, op
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

    operations = (
        op("log in to twitter as {own_account} with password {password} | sign in to twitter as {own_account} using the password {password} | open my twitter account {own_account}, password {password}", authenticate_twitter={"username": "own_account", "password": "password"}, needs=["logged_out"]),
        op("post the tweet {post} | tweet {post} | publish {post} on twitter", post_tweet={"content": "post"}, needs=["logged_in"], notes={"tweet": "id"}),
        op("post the tweet {post} with the tag {tag} | tweet {post} tagged {tag} | publish {post} on twitter under the tag {tag}", post_tweet={"content": "post", "tags": ["tag"]}, needs=["logged_in"], notes={"tweet": "id"}),
        op("post the tweet {post} mentioning {mentioned} | tweet {post} and mention {mentioned} in it | publish {post} on twitter with a mention of {mentioned}", post_tweet={"content": "post", "mentions": ["mentioned"]}, needs=["logged_in"], notes={"tweet": "id"}),
        op("retweet {tweet_not_shared} | share {tweet_not_shared} again | repost {tweet_not_shared}", retweet={"tweet_id": "tweet_not_shared"}, needs=["logged_in"]),
        op("comment {comment_text} on {tweet} | reply to {tweet} with {comment_text} | leave the comment {comment_text} under {tweet}", comment={"tweet_id": "tweet", "comment_content": "comment_text"}, needs=["logged_in"]),
        op("mention {mentioned} in {tweet} | add a mention of {mentioned} to {tweet} | tag the user {mentioned} in {tweet}", mention={"tweet_id": "tweet", "mentioned_usernames": ["mentioned"]}, needs=["logged_in"]),
        op("follow {new_account} | start following the user {new_account} | subscribe to the tweets of {new_account}", follow_user={"username_to_follow": "new_account"}, needs=["logged_in"]),
        op("unfollow {followed} | stop following the user {followed} | take {followed} off the list of people I follow", unfollow_user={"username_to_unfollow": "followed"}, needs=["logged_in"]),
        op("list everyone I follow | show the accounts that I follow | tell me whom I follow", list_all_following={}, needs=["logged_in"], weight=0.5),
        op("check whether I am logged in to twitter | tell me the twitter login status | see if my twitter session is open", posting_get_login_status={}, weight=0.3),
        op("show me {tweet} | get {tweet} | bring up {tweet}", get_tweet={"tweet_id": "tweet"}, weight=0.7),
        op("show the comments on {tweet} | list what people commented on {tweet} | read me the replies to {tweet}", get_tweet_comments={"tweet_id": "tweet"}, weight=0.6),
        op("show all tweets by {author} | list what {author} has tweeted | get the tweets of the user {author}", get_user_tweets={"username": "author"}, weight=0.6),
        op("give me the statistics of {author} on twitter | show the user stats for {author} | tell me how many followers the user {author} has", get_user_stats={"username": "author"}, weight=0.6),
        op("search tweets for {topic} | find tweets about {topic} | look for {topic} on twitter", search_tweets={"keyword": "topic"}, weight=0.6),
    )  # fmt: skip
