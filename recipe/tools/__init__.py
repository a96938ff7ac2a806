"""Side commands: audit, chat, judge, publish, train_fctncalling. Nothing else in recipe/ imports them."""
