"""Messages from OpenAI-compatible servers: an evaluation has its model say them, a played user its words.

client.py      one message from a server, with retries, and which kinds of fault there are; it reads no more than
               a message can be
reply.py       what a server's reply says, whatever its shape
workers.py     several who ask one server side by side
"""
