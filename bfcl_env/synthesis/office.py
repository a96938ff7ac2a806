"""Files, sums, messages, posts, tickets and stocks: the domains of a desk."""

from typing import Any

from bfcl_env.synthesis.operation import Domain, Said, between, named, one_of, part_number, state
from bfcl_env.synthesis.words import ADJECTIVES, Names


class Files(Domain):
    """A folder with two to four files and one or two folders."""

    owner = "GorillaFileSystem"
    text = named(Names.sentence)
    lines = between(1, 3)

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

    def word(self) -> Any:
        return self.any_of(word for word in self._here()[self.world.drawn["file"]].content.split() if len(word) > 4)

    def stem(self) -> Any:
        found = self.any_of(self._of_kind(folders=False))
        return found and found.partition(".")[0]


SI = ("km", "m", "cm", "mm")
SYSTEMS = {"cm": "in", "m": "ft", "km": "miles", "kg": "lb"}


class Mathematics(Domain):
    """No state: what is left to refer to is the last result."""

    owner = "MathAPI"
    second = part_number(2, 300)
    small = between(2, 4)
    places = between(1, 2)
    precision = between(5, 12)
    base = one_of(2, 3, 10)
    unit = one_of(*SI)
    here_unit = one_of(*SYSTEMS, *SYSTEMS.values())

    def start(self) -> dict[str, Any]:
        return {}

    def number(self) -> Any:
        last = self.world.noted.get("result")
        if isinstance(last, int | float) and self.random.random() < 0.6:
            return self._last(last)
        return self.names.number(2, 400)

    def fraction(self) -> Any:
        last = self.world.noted.get("result")
        if isinstance(last, float) and last != int(last):
            return self._last(last)
        return self.names.number(2000, 99999) / 1000

    def _last(self, value: float) -> Said:
        self.world.linked = True
        return Said(value, self.random.choice(("that result", "the last result")))

    def several(self) -> Any:
        return [self.names.number(1, 400) for _ in range(self.random.randint(3, 5))]

    def below_zero(self) -> Any:
        return -self.names.number(2, 400)

    def other_unit(self) -> Any:
        return self.any_of(unit for unit in SI if unit != self.world.drawn["unit"])

    def there_unit(self) -> Any:
        both = SYSTEMS | {there: here for here, there in SYSTEMS.items()}
        return both[self.world.drawn["here_unit"]]


class Messages(Domain):
    """A workspace of three or four people; most often somebody is logged in."""

    owner = "MessageAPI"
    logged_in = state("current_user")
    message = named(Names.sentence)

    def start(self) -> dict[str, Any]:
        people: dict[str, str] = {}
        while len(people) < 3:  # of four draws two may be the same name
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

    def keyword(self) -> Any:
        return self.long_word(text for item in self.instance.inbox for text in item.values())


class Posts(Domain):
    """Three tweets; most often the account is logged in."""

    owner = "TwitterAPI"
    new = ("the tweet I just posted", "my new tweet", "that tweet")
    logged_in = state("authenticated")
    own_account = state("username")
    password = state("password")
    post = comment_text = named(Names.sentence)

    def start(self) -> dict[str, Any]:
        me, first = self.names.account(), self.random.randint(3, 900)
        tweets = {
            str(number): {
                "id": number,
                "username": self.random.choice((me, self.names.account())),
                "content": self.names.sentence(),
                "tags": [self.tag()],
                "mentions": [],
            }
            for number in range(first, first + 3)
        }
        return {
            "username": me,
            "password": self.names.password(),
            "authenticated": self.random.random() < 0.75,
            "tweets": tweets,
            "comments": {},
            "retweets": {},
            "following_list": [self.names.account() for _ in range(2)],
            "tweet_counter": first + 3,
        }

    def tag(self) -> Any:
        return f"#{self.random.choice(ADJECTIVES)}"

    def mentioned(self) -> Any:
        return f"@{self.names.account()}"

    def tweet(self) -> Any:
        return self.referred("tweet", self.instance.tweets)

    def tweet_not_shared(self) -> Any:
        shared = self.instance.retweets.get(self.instance.username, [])
        return self.referred("tweet", [item for item in self.instance.tweets if item not in shared])

    def new_account(self) -> Any:
        return self.fresh(self.names.account, self.instance.following_list)

    def followed(self) -> Any:
        return self.any_of(self.instance.following_list)

    def author(self) -> Any:
        return self.any_of(tweet["username"] for tweet in self.instance.tweets.values())

    def topic(self) -> Any:
        return self.long_word(tweet["content"] for tweet in self.instance.tweets.values())


class Tickets(Domain):
    """Three tickets; most often somebody is logged in."""

    owner = "TicketAPI"
    new = ("the new ticket", "the ticket I just created", "that ticket")
    logged_in = state("current_user")
    title = named(Names.title)
    description = named(Names.sentence)
    priority = between(1, 5)
    user_name = named(Names.account)
    password = named(Names.password)

    def start(self) -> dict[str, Any]:
        me = self.names.account()
        numbers = sorted({self.names.number(10, 900) for _ in range(3)})
        queue = [
            {
                "id": number,
                "title": self.names.title(),
                "description": self.names.sentence(),
                "status": "Open",
                "priority": self.random.randint(1, 5),
                "created_by": self.random.choice((me, me, self.names.account())),
            }
            for number in numbers
        ]
        user = me if self.random.random() < 0.75 else None
        return {"ticket_queue": queue, "ticket_counter": self.names.number(901, 1020), "current_user": user}

    def ticket(self) -> Any:
        return self.referred("ticket", [ticket["id"] for ticket in self.instance.ticket_queue])

    def open_ticket(self) -> Any:
        return self.referred("ticket", [item["id"] for item in self.instance.ticket_queue if item["status"] == "Open"])


COMPANIES = {
    **{"AAPL": "Apple", "GOOG": "Google", "TSLA": "Tesla", "MSFT": "Microsoft", "NVDA": "Nvidia"},
    **{"ZETA": "Zeta Corp", "ALPH": "Alpha Tech", "OMEG": "Omega Industries", "NEPT": "Neptune Systems"},
    "SYNX": "Synex Solutions",
}


class Trading(Domain):
    """Four stocks and two orders; most often somebody is logged in."""

    owner = "TradingBot"
    new = ("my new order", "the order I just placed", "that order")
    logged_in = state("authenticated")
    amount = between(2, 60)
    price = part_number(20, 900)
    money = part_number(100, 9000)
    low = part_number(20, 400)
    high = part_number(401, 900)
    sector = one_of("Technology", "Automobile")
    user_name = named(Names.account)
    password = named(Names.password)

    def start(self) -> dict[str, Any]:
        symbols, first = self.random.sample([*COMPANIES], 4), self.names.number(1000, 9000)
        orders = {
            str(first + number): {
                "id": first + number,
                "order_type": self.random.choice(("Buy", "Sell")),
                "symbol": self.random.choice(symbols),
                "price": self._price(),
                "amount": self.random.randint(1, 90),
                "status": self.random.choice(("Open", "Pending", "Completed")),
            }
            for number in range(2)
        }
        stocks = {
            symbol: {
                "price": self._price(),
                "percent_change": self.random.randint(-30, 30) / 100,
                "volume": self.random.randint(5, 40) / 10,
                "MA(5)": self._price(),
                "MA(20)": self._price(),
            }
            for symbol in symbols
        }
        account = {
            "account_id": self.names.number(10000, 99999),
            "balance": float(self.random.randint(90, 400) * 1000),
            "binding_card": 10**15 + self.random.randint(0, 10**12),
        }
        return {
            "orders": orders,
            "account_info": account,
            "authenticated": self.random.random() < 0.8,
            "market_status": "Open",
            "order_counter": first + 2,
            "stocks": stocks,
            "watch_list": self.random.sample(symbols, 1),
            "transaction_history": [],
            "random_seed": self.random.randint(1, 10**6),
        }

    def _price(self) -> float:
        return self.random.randint(200, 9000) / 10

    def stock(self) -> Any:
        return self.any_of(self.instance.stocks)

    def company(self) -> Any:
        return COMPANIES[self.any_of(self.instance.stocks)]

    def new_company(self) -> Any:
        return self.any_of(COMPANIES[item] for item in self._unwatched())

    def several(self) -> Any:
        return self.random.sample([*self.instance.stocks], self.random.randint(2, 3))

    def unwatched(self) -> Any:
        return self.any_of(self._unwatched())

    def _unwatched(self) -> list[str]:
        return [item for item in self.instance.stocks if item not in self.instance.watch_list]

    def watched(self) -> Any:
        return self.any_of(self.instance.watch_list)

    def order(self) -> Any:
        return self.referred("order", self.instance.orders)

    def open_order(self) -> Any:
        orders = self.instance.orders.items()
        return self.referred("order", [number for number, item in orders if item["status"] in ("Open", "Pending")])

    def threshold(self) -> Any:
        return self.random.randint(1, 9) / 100

    def side(self) -> Any:
        kind = self.random.choice(("Buy", "Sell"))
        return Said(kind, kind.lower())
