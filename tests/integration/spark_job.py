"""The job that ``test_spark_faults`` kills: from a topic to files, on two executors, a few thousand records at a time."""

import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException

from .spark import new_session

LATE = "Python worker failed to connect back"
"""What Spark says of a Python process that took more than 10 s to start, as it may on a busy machine; a fixed limit of Spark's."""

APPLICATIONS = "applications"
"""The file with what Spark called each run."""


def main(servers: str, topic: str, directory: str) -> None:
    """Copy all that is in ``topic``; a second run goes on where the first one ended."""
    session = new_session("local-cluster[2,1,512]", spark__executor__memory="512m", spark__task__maxFailures="8")
    with Path(directory, APPLICATIONS).open("a") as names:  # by which its executors' files are found
        names.write(session.sparkContext.applicationId + "\n")
    frame = (
        session.readStream.format("kafka_async")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "4000")
        .load()
        .select("partition", "offset", "value")
    )
    writer = frame.writeStream.format("parquet").option("path", f"{directory}/out")
    writer = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    while True:
        try:
            writer.start().awaitTermination()
        except StreamingQueryException as error:
            if LATE not in str(error):
                raise
        else:
            break
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
