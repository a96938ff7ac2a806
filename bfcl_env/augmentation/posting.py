"""Rules for TwitterAPI: who is logged in, which tweets there are."""

from bfcl_env.augmentation.rule import SILENT, listing, rules_of, sentences, short
from bfcl_env.augmentation.situation import Situation

RULES, rule = rules_of("TwitterAPI")


@rule("", "not authenticated", "post_tweet(content='hi')")
def twitter_login(situation: Situation) -> str:
    return sentences(
        "Nobody is logged in.",
        situation.if_visible(
            "authenticate_twitter",
            "First call authenticate_twitter(username=..., password=...); ask the user for what you do not know.",
            "No available function logs in: tell the user so.",
        ),
    )


@rule("", "Tweet with ID .* not found", "get_tweet(tweet_id=99)")
def no_tweet(situation: Situation) -> str:
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


@rule(
    "mention",
    "object has no attribute|'mentions'",
    "post_tweet(content='a', mentions='@b')",
    "mention(tweet_id=0, mentioned_usernames=['@c'])",
    scene="multi_turn_base_5",
)
def no_list_of_mentions(situation: Situation) -> str:
    return sentences(
        "The usernames of this tweet cannot be extended.",
        situation.if_visible("post_tweet", "Name them in a new tweet with post_tweet(content=..., mentions=[...])."),
    )


@rule(
    "search_tweets get_user_tweets get_user_stats",
    "object has no attribute|Error during execution: '",
    "post_tweet(content=5)",
    "search_tweets(keyword='a')",
    scene="multi_turn_base_5",
)
def tweet_incomplete(situation: Situation) -> str:
    return sentences(
        "A stored tweet lacks some of its parts or has a wrong one, so tweets cannot be searched.",
        situation.if_visible("get_tweet", "get_tweet shows a single tweet by its id.", "Tell the user so."),
    )


@rule(
    "authenticate_twitter",
    '"authentication_status": false',
    "authenticate_twitter(username='a', password='b')",
    errors=SILENT,
)
def wrong_password(situation: Situation) -> str:
    return "The username or the password is wrong, and nobody is logged in. Ask the user for both."


@rule(
    "follow_user unfollow_user retweet",
    'follow_status": false|Already retweeted',
    "unfollow_user(username_to_unfollow='nobody')",
    errors=SILENT,
    scene="multi_turn_base_5",
)
def nothing_to_change(situation: Situation) -> str:
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
