"""The command ``kafka-async`` (extra ``cli``).

::

    main.py       where the command starts: Ctrl-C from the first moment on
    launch.py     says what to install if an extra is missing; standard output
    commands.py   which commands there are; each is imported when it runs
    consume.py    consume
    export.py     export
    reference.py  options
    demonstration.py    demo
    topics.py     topics list, topics describe
    groups.py     groups list, groups describe, groups configure
    offsets.py    offsets show, offsets reset, offsets skip, offsets forget
    deadletters.py      deadletters show, deadletters redrive
    producers.py  writing with another library's producer
    sole_member.py      the only member of a group, for commands that must not run twice at once
    done_maps.py  what process() has kept of what is done, in a commit's metadata
    copying.py    what consume does: where reading begins, when it is over
    ends.py       ends of what is read, while the logs have them
    demo.py       what demo does: a simulated cluster, a producer, a check that all arrived
    serdes.py     Avro, Protobuf and JSON with a schema registry, as JSON
    formats.py    a record as bytes: kcat's format strings, JSON
    tables.py     rows as a table for people
    consumer_options.py   the options of the consumer: -b, -F, -X
    share.py      share consume
    top.py        top
    monitor.py    monitor
    workers.py    run
    screens.py    what top shows, and what its keys do
    painting.py   a terminal that shows pages, and is left as it was
    keys.py       bytes from a terminal as keys
    shell.py      what all commands share: output, exit codes, the log
"""
