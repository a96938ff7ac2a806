"""Rules for TradingBot: login, orders and symbols that exist, balance and market."""

from bfcl_env.augmentation.rule import SILENT, Rule, Situation, listing, log_in, rules_of, says, sentences, short

RULES: list[Rule] = []
rule = rules_of("TradingBot", RULES)
COMPANIES = (
    *("Apple", "Google", "Tesla", "Microsoft", "Nvidia", "Zeta Corp", "Alpha Tech", "Omega Industries", "Quasar Ltd."),
    *("Neptune Systems", "Synex Solutions", "Amazon", "Gorilla"),
)
"""All that `get_symbol_by_name` knows, the same in every scenario."""
SECTORS = ("Technology", "Automobile")

rule("", "not authenticated", "trading_logout()", "get_account_info()", name="trading_login")(log_in("trading_login"))


def _symbol_sources(situation: Situation) -> str:
    return sentences(
        situation.if_visible("get_symbol_by_name", "get_symbol_by_name gives the symbol of a company."),
        situation.if_visible(
            "get_available_stocks", f"get_available_stocks lists those of a sector: {listing(SECTORS)}."
        ),
    ).strip()


@rule("get_order_details cancel_order", "Order with ID .* not found", "cancel_order(order_id=1)")
def no_order(situation: Situation) -> str:
    ids = listing(key for key in situation.instance.orders if isinstance(key, int))
    history = "get_order_history" in situation.visible and situation.instance.authenticated
    known = history or "get_order_details" in situation.visible
    there = f"Orders: {ids}." if ids else "There are no orders yet."
    return sentences(
        f"There is no order {situation.shown('order_id')}.",
        there if known else "Ask the user for the id.",
        "Use an id that exists.",
    )


rule("cancel_order", "already completed", "cancel_order(order_id=12345)", name="order_completed")(
    says(
        "A completed order cannot be cancelled any more; tell the user so.",
        ("get_order_details", "get_order_details shows the status of an order."),
    )
)


@rule("get_stock_info place_order", "Stock with symbol|Invalid stock symbol", "get_stock_info(symbol='Apple')")
def no_symbol(situation: Situation) -> str:
    given = situation.argument("symbol")
    plain = "".join(letter for letter in str(given) if letter.isalnum()).upper()
    if plain != given and plain in situation.instance.stocks:
        return f"Write the symbol in capitals, without anything around it: {short(given)} has more than that."
    return sentences(
        f"{short(given)} is the name of a company, not a symbol."
        if str(given).lower() in map(str.lower, COMPANIES)
        else f"No stock has the symbol {short(given)}.",
        _symbol_sources(situation) or "Ask the user for the symbol.",
    )


@rule("place_order withdraw_funds fund_account", "must be positive", "fund_account(amount=0)")
def not_positive(situation: Situation) -> str:
    names = [f"'{name}'" for name in ("price", "amount") if name in situation.schema["properties"]]
    return f"{' and '.join(names)} must be above 0. Take the value from the user's request."


@rule(
    "place_order withdraw_funds",
    "Insufficient funds",
    "place_order(order_type='Buy', symbol='AAPL', price=1000, amount=1000)",
)
def too_expensive(situation: Situation) -> str:
    balance = situation.instance.account_info.get("balance")
    more = situation.if_visible(
        "fund_account", "or pay money in with fund_account, if the user wants that", "or ask the user"
    )
    return sentences(
        "The balance is too low for this.",
        situation.if_visible("get_account_info", f"It is {short(balance)}."),
        "Choose a smaller amount",
        f"{more}.",
    )


rule("withdraw_funds", "Market is closed", "withdraw_funds(amount=1)", name="market_closed")(
    says("Money can be withdrawn only while the market is open, and no available function opens it: tell the user so.")
)


@rule("remove_stock_from_watchlist", "not found in watchlist", "remove_stock_from_watchlist(symbol='ABC')")
def not_watched(situation: Situation) -> str:
    watched, given = situation.instance.watch_list, situation.argument("symbol")
    there = f"On it: {listing(watched, given)}." if watched else "It is empty."
    return sentences(
        f"{short(given)} is not on the watchlist, so it cannot be taken off.",
        situation.if_visible("get_watchlist", there, "Ask the user which one."),
    )


rule(
    "get_transaction_history",
    "time data|unconverted data|out of range",
    "get_transaction_history(start_date='yesterday')",
    name="history_date",
)(says("'start_date' and 'end_date' must be dates written as YYYY-MM-DD, such as 2024-01-31, or be left out."))


@rule("get_symbol_by_name", "Stock not found", "get_symbol_by_name(name='Appel')", errors=SILENT)
def company(situation: Situation) -> str:
    known = listing(COMPANIES, situation.argument("name"), 200)
    return f"No such company. The known ones, to be written like this: {known}."


rule(
    "get_available_stocks",
    r'"stock_list": \[\]',
    "get_available_stocks(sector='Cars')",
    errors=SILENT,
    name="sector",
)(says(f"No such sector. Choose one of {listing(SECTORS)}, written like this."))


@rule("add_to_watchlist", "", "add_to_watchlist(stock='Apple')", errors=SILENT)
def not_added(situation: Situation) -> str | None:
    given = situation.argument("stock")
    if given in situation.instance.watch_list:
        return None
    return sentences(
        f"{short(given)} was not put on the watchlist: no stock has this symbol.", _symbol_sources(situation)
    )
