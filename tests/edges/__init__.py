"""The matrix of edges: every way of reading, every call between two records, every event that may come between them.

    programs.py     programs as data, how they are made and how a failing one is cut down
    model.py        what must hold: a pure class that is notified of what happens and keeps the breaches
    others.py       the other members of the group, and what the consumer's member knows of them
    world.py        one topic, its bad records, call-backs that note what they see
    runner.py       runs a program on a consumer and notifies the model
    __main__.py     ``python -m tests.edges --seconds 600``: as many random programs as there is time for

Nothing here touches a private name of the package, so that the same programs judge any way to build a consumer.
"""
