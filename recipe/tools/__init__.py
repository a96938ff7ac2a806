"""Side commands: audit, chat, judge, train_fctncalling. Nothing else in recipe/ imports them."""
