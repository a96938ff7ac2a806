"""Side commands: audit, chat, train_fctncalling. Nothing else in recipe/ imports them."""
