"""TradingBot."""

from typing import Any

from bfcl_env.synthesis.operation import Domain, Said

COMPANIES = {
    "AAPL": "Apple",
    "GOOG": "Google",
    "TSLA": "Tesla",
    "MSFT": "Microsoft",
    "NVDA": "Nvidia",
    "ZETA": "Zeta Corp",
    "ALPH": "Alpha Tech",
    "OMEG": "Omega Industries",
    "NEPT": "Neptune Systems",
    "SYNX": "Synex Solutions",
}
NEW = ("my new order", "the order I just placed", "that order")


class Trading(Domain):
    """Four stocks and two orders; most often somebody is logged in."""

    owner = "TradingBot"

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

    def logged_in(self) -> Any:
        return self.instance.authenticated

    def logged_out(self) -> Any:
        return not self.instance.authenticated

    def stock(self) -> Any:
        return self.any_of(self.instance.stocks)

    def company(self) -> Any:
        return COMPANIES[self.any_of(self.instance.stocks)]

    def new_company(self) -> Any:
        return self.any_of(COMPANIES[item] for item in self.instance.stocks if item not in self.instance.watch_list)

    def several(self) -> Any:
        return self.random.sample([*self.instance.stocks], self.random.randint(2, 3))

    def unwatched(self) -> Any:
        return self.any_of(item for item in self.instance.stocks if item not in self.instance.watch_list)

    def watched(self) -> Any:
        return self.any_of(self.instance.watch_list)

    def _order(self, *status: str) -> Any:
        found = [number for number, order in self.instance.orders.items() if not status or order["status"] in status]
        return self.referred("order", found, NEW, "order {}")

    def order(self) -> Any:
        return self._order()

    def open_order(self) -> Any:
        return self._order("Open", "Pending")

    def amount(self) -> Any:
        return self.random.randint(2, 60)

    def price(self) -> Any:
        return self.names.number(20, 900)

    def money(self) -> Any:
        return self.names.number(100, 9000)

    def low(self) -> Any:
        return self.names.number(20, 400)

    def high(self) -> Any:
        return self.names.number(401, 900)

    def threshold(self) -> Any:
        return self.random.randint(1, 9) / 100

    def sector(self) -> Any:
        return self.random.choice(("Technology", "Automobile"))

    def side(self) -> Any:
        kind = self.random.choice(("Buy", "Sell"))
        return Said(kind, kind.lower())

    def user_name(self) -> Any:
        return self.names.account()

    def password(self) -> Any:
        return self.names.title().replace(" ", "")
