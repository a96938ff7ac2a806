"""Rules for TwitterAPI: who is logged in, which tweets there are."""

from bfcl_env.augmentation.rule import SILENT, Rule, listing, sentences, short
from bfcl_env.augmentation.situation import Situation

_CLASS = "TwitterAPI"


def twitter_login(situation: Situation) -> str:
    """How to log in."""
    return sentences(
        "Nobody is logged in.",
        situation.if_visible(
            "authenticate_twitter",
            "First call authenticate_twitter(username=..., password=...); ask the user for what you do not know.",
            "No available function logs in: tell the user so.",
        ),
    )


def wrong_password(situation: Situation) -> str:
    """Only the user knows."""
    return "The username or the password is wrong, and nobody is logged in. Ask the user for both."


def no_tweet(situation: Situation) -> str:
    """Which tweets there are."""
    given = situation.argument("tweet_id")
    ids = listing(situation.instance.tweets, given)
    return sentences(
        f"There is no tweet {short(given)}. Use the id of one that exists.",
        situation.if_visible("search_tweets", f"Ids: {ids}." if ids else "So far there is none."),
        situation.if_visible(
            "get_user_tweets", "get_user_tweets shows the tweets of a user with their ids." if ids else ""
        ),
        situation.if_visible("post_tweet", "" if ids else "post_tweet makes the first one."),
    )


def no_list_of_mentions(situation: Situation) -> str:
    """That tweet cannot be extended."""
    return sentences(
        "The usernames of this tweet cannot be extended.",
        situation.if_visible("post_tweet", "Name them in a new tweet with post_tweet(content=..., mentions=[...])."),
    )


def tweet_incomplete(situation: Situation) -> str:
    """Other ways to look."""
    return sentences(
        "A stored tweet lacks some of its parts or has a wrong one, so tweets cannot be searched.",
        situation.if_visible("get_tweet", "get_tweet shows a single tweet by its id.", "Tell the user so."),
    )


def nothing_to_change(situation: Situation) -> str:
    """It is so already."""
    words = {
        "follow_user": "This user is followed already.",
        "unfollow_user": "This user is not followed, so there is nothing to undo.",
        "retweet": "This was done before.",
    }
    return sentences(
        f"{words[situation.call.name]} Nothing has changed; do not repeat the call.",
        situation.if_visible("list_all_following", "list_all_following shows who is followed.")
        if situation.call.name == "unfollow_user"
        else "",
    )


RULES = (
    Rule("twitter_login", _CLASS, "", "not authenticated", twitter_login, ("post_tweet(content='hi')",)),
    Rule("no_tweet", _CLASS, "", "Tweet with ID .* not found", no_tweet, ("get_tweet(tweet_id=99)",)),
    Rule(
        "no_list_of_mentions",
        _CLASS,
        "mention",
        "object has no attribute|'mentions'",
        no_list_of_mentions,
        ("post_tweet(content='a', mentions='@b')", "mention(tweet_id=0, mentioned_usernames=['@c'])"),
        scene="multi_turn_base_5",
    ),
    Rule(
        "tweet_incomplete",
        _CLASS,
        "search_tweets get_user_tweets get_user_stats",
        "object has no attribute|Error during execution: '",
        tweet_incomplete,
        ("post_tweet(content=5)", "search_tweets(keyword='a')"),
        scene="multi_turn_base_5",
    ),
    Rule(
        "wrong_password",
        _CLASS,
        "authenticate_twitter",
        '"authentication_status": false',
        wrong_password,
        ("authenticate_twitter(username='a', password='b')",),
        SILENT,
    ),
    Rule(
        "nothing_to_change",
        _CLASS,
        "follow_user unfollow_user retweet",
        'follow_status": false|Already retweeted',
        nothing_to_change,
        ("unfollow_user(username_to_unfollow='nobody')",),
        SILENT,
        scene="multi_turn_base_5",
    ),
)
